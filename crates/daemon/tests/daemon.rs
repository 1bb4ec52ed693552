//! The daemon over its real socket: programs that behave, and clients that do not.

use config::ShareAsked;
use daemon::{Config, Daemon};
use policy::sharing::SharingConfig;
use share_client::{Answer, Boost, Change, Client, DaemonPaths, Gpu, Gpus, Question, Register, Status, Uuid};
use shm::{
    Connection, ControlPage, FileList, MAX_MESSAGE, Message, Name, Note, NotesPage, OwnPage, SLOTS, SeenPage,
    TenantPage, VERSION,
};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything is waited for: longer than any machine keeps a process from running.
const PATIENCE: Duration = Duration::from_secs(60);
const GPU: [u8; 16] = [7; 16];

struct Bench {
    folder: TempDir,
    daemon: Option<Daemon>,
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench { folder: tempfile::tempdir().unwrap(), daemon: None };
        bench.start();
        bench
    }

    fn paths(&self) -> DaemonPaths {
        DaemonPaths::at(self.folder.path().join("node.sock"))
    }

    fn config(&self) -> Config {
        let gpu = Gpu { index: 0, uuid: Uuid(GPU), name: "Test".into(), memory_bytes: 8 << 30 };
        let gpus = Gpus { gpus: vec![gpu], ..Gpus::default() };
        Config { paths: self.paths(), gpus, idle_exit: None, record: None, sharing: SharingConfig::default() }
    }

    fn start(&mut self) {
        self.daemon = Some(Daemon::start(self.config()).unwrap());
    }

    fn stop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
            daemon.join();
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.paths()).unwrap().expect("a daemon is there")
    }

    fn status(&self) -> Status {
        self.client().status().unwrap()
    }

    fn connect(&self) -> Connection {
        Connection::connect(&self.paths().socket, PATIENCE).unwrap()
    }

    /// Looks until something is so.
    fn wait(&self, what: &str, test: impl Fn(&Status) -> bool) {
        let began = Instant::now();
        while !test(&self.status()) {
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}: {:?}", self.status());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop();
    }
}

fn registration(name: &str, share: &str) -> Register {
    let share: ShareAsked = serde_json::from_str(share).unwrap();
    Register { name: name.into(), rename: false, process: false, share, command: None, wait: false, leaves: false }
}

fn register(client: &Client, name: &str, share: &str) -> Result<String, String> {
    match client.ask(&Question::Register(registration(name, share))).unwrap() {
        Answer::Registered(registered) => Ok(registered.name),
        Answer::Error(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// Somebody who comes where others may have to leave: `Err` says why it is to come again.
fn enter(client: &Client, register: Register) -> Result<(), String> {
    match client.ask(&Question::Register(register)).unwrap() {
        Answer::Registered(_) => Ok(()),
        Answer::Later(reason) => Err(reason),
        other => panic!("{other:?}"),
    }
}

fn set(client: &Client, name: &str, share: &str) -> Result<(), String> {
    let change = Change { name: name.into(), share: serde_json::from_str(share).unwrap() };
    match client.ask(&Question::Set(change)).unwrap() {
        Answer::Set(_) => Ok(()),
        Answer::Error(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn say(connection: &Connection, message: Message<'_>) {
    let mut buffer = vec![0; MAX_MESSAGE];
    connection.send(message.encode(&mut buffer).unwrap(), &[]).unwrap();
}

/// What the daemon refused it for.
fn refusal(connection: &Connection) -> String {
    let mut buffer = vec![0; MAX_MESSAGE];
    let length = connection.receive(&mut buffer, &mut FileList::new()).unwrap();
    let Ok(Message::Refused { version: VERSION, text }) = Message::decode(&buffer[..length]) else {
        panic!("{:?}", Message::decode(&buffer[..length]))
    };
    assert_eq!(connection.receive(&mut [0; 64], &mut FileList::new()).unwrap_or(0), 0, "it is closed then");
    text.to_owned()
}

/// A process of a tenant, as the library would be.
struct Process {
    _connection: Connection,
    page: OwnPage<TenantPage>,
    control: SeenPage<ControlPage>,
    notes: OwnPage<NotesPage>,
    slots: Vec<SeenPage<TenantPage>>,
    slot: u32,
}

fn attach(bench: &Bench, name: &str) -> Process {
    let connection = bench.connect();
    say(&connection, Message::Hello { pid: 1, tenant: Name::new(name), flags: 0 });
    say(&connection, Message::Attach { gpu: GPU, used_bytes: 0, charged_ns: 0 });
    let (mut buffer, mut files) = (vec![0; MAX_MESSAGE], FileList::new());
    let length = connection.receive(&mut buffer, &mut files).unwrap();
    let Ok(Message::Attached { slot, slots, generation, tenant }) = Message::decode(&buffer[..length]) else {
        panic!("{:?}", Message::decode(&buffer[..length]))
    };
    assert_eq!((slots as usize, files.len()), (SLOTS, SLOTS + 3));
    let page = OwnPage::<TenantPage>::open(files[0].as_fd()).unwrap();
    let control = SeenPage::open(files[1].as_fd()).unwrap();
    assert!(OwnPage::<ControlPage>::open(files[1].as_fd()).is_err(), "the control page is to be read");
    assert!(OwnPage::<TenantPage>::open(files[3].as_fd()).is_err(), "the pages of others are to be read");
    let notes = OwnPage::<NotesPage>::open(files[2].as_fd()).unwrap();
    let slots = files[3..].iter().map(|file| SeenPage::open(file.as_fd()).unwrap()).collect();
    page.occupy(std::process::id(), slot, generation, tenant);
    Process { _connection: connection, page, control, notes, slots, slot }
}

#[test]
fn a_boost_stays_between_request_and_limit() {
    let bench = Bench::new();
    let client = bench.client();
    register(&client, "serve", r#"{"request": "20%", "limit": "80%"}"#).unwrap();
    let boost = |name: &str, to: &str| {
        let boost = Boost { name: name.into(), to: to.parse().unwrap() };
        match client.ask(&Question::Boost(boost)).unwrap() {
            Answer::Boosted(to) => to.to_string(),
            Answer::Error(error) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(["50%", "95%", "5%"].map(|to| boost("serve", to)), ["50%", "80%", "20%"]);
    assert_eq!(boost("nobody", "50%"), "there is no tenant `nobody`; `weft top` lists them");
    boost("serve", "60%");
    assert_eq!(bench.status().idle[0].boost_permille, 600);
}

#[test]
fn memory_that_is_freed_for_a_program_goes_to_no_other() {
    const JOB: &str = r#"{"class": "best-effort", "memory": "6GiB"}"#;
    const SERVE: &str = r#"{"class": "latency", "memory": "4GiB"}"#;
    let mut bench = Bench::new();
    let job = || Register { wait: true, leaves: true, ..registration("job", JOB) };
    let wanted = || match bench.client().ask(&Question::Wanted("job".into())).unwrap() {
        Answer::Wanted(whom) => whom,
        other => panic!("{other:?}"),
    };
    let (first, serve, again) = (bench.client(), bench.client(), bench.client());
    enter(&first, job()).unwrap();
    assert_eq!(wanted(), None);
    assert_eq!(enter(&serve, registration("serve", SERVE)).unwrap_err(), "gpu 0: job makes room");
    assert_eq!(wanted().as_deref(), Some("serve"));
    assert!(enter(&serve, registration("serve", SERVE)).is_err(), "it is still there");
    drop(first);
    bench.wait("the job to be gone", |status| status.idle.is_empty());
    let reason = enter(&again, job()).unwrap_err();
    assert!(reason.starts_with("its memory is not free"), "{reason}");
    enter(&serve, registration("serve", SERVE)).unwrap();
    assert!(enter(&again, job()).is_err());
    drop(serve);
    bench.wait("the room", |status| status.idle.is_empty());
    enter(&again, job()).unwrap();
    // A daemon that was killed knows who makes room. It is asked again by whoever needs it.
    bench.stop();
    bench.start();
    assert!(enter(&bench.client(), registration("serve", SERVE)).unwrap_err().contains("job makes room"));
    // Nobody makes room who did not say so.
    let mut bench = Bench::new();
    let stays = bench.client();
    register(&stays, "job", JOB).unwrap();
    register(&bench.client(), "serve", SERVE).unwrap();
    bench.stop();
}

#[test]
fn nobody_waits_for_a_job_without_a_supervisor() {
    let bench = Bench::new();
    let [job, serve] = [(); 2].map(|()| bench.client());
    let share = r#"{"class": "best-effort", "memory": "6GiB"}"#;
    enter(&job, Register { leaves: true, ..registration("job", share) }).unwrap();
    let come = || enter(&serve, registration("serve", r#"{"class": "latency", "memory": "4GiB"}"#));
    assert_eq!(come().unwrap_err(), "gpu 0: job makes room");
    let until = Instant::now() + PATIENCE;
    while come().is_err() {
        assert!(Instant::now() < until, "it is waited for in vain");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(bench.status().idle.len(), 2, "the job is still there");
}

#[test]
fn a_program_gets_its_pages_and_its_share_and_leaves() {
    let bench = Bench::new();
    let owner = bench.client();
    register(&owner, "train", r#"{"class": "best-effort", "limit": "40%", "memory": "1GiB"}"#).unwrap();
    let process = attach(&bench, "train");
    // What was asked for is on the page before the program is told to begin.
    let control = process.control.read().unwrap();
    assert_eq!((control.limit_permille, control.memory_limit), (400, 1 << 30));
    assert_eq!(process.slots[process.slot as usize].read().unwrap().pid, std::process::id());
    process.page.used_bytes.store(77, Ordering::Relaxed);
    bench.wait("its memory to be seen", |status| {
        status.gpus[0].tenants.iter().any(|tenant| tenant.name == "train" && tenant.memory_bytes == 77)
    });
    let heartbeat = control.heartbeat_ns;
    bench.wait("the heart to beat", |_| process.control.read().unwrap().heartbeat_ns > heartbeat);

    set(&bench.client(), "train", r#"{"limit": "20%", "memory": "2GiB"}"#).unwrap();
    bench.wait("its memory limit", |_| process.control.read().unwrap().memory_limit == 2 << 30);
    assert_eq!(process.control.read().unwrap().limit_permille, 200);

    drop(process);
    bench.wait("it to be gone from the GPU", |status| status.gpus[0].tenants.is_empty());
    assert_eq!(bench.status().idle.len(), 1, "who registered it is there");
    drop(owner);
    bench.wait("it to be gone", |status| status.idle.is_empty());
}

#[test]
fn tenants_survive_a_restart() {
    let mut bench = Bench::new();
    let owner = bench.client();
    register(&owner, "train", r#"{"limit": "40%"}"#).unwrap();
    assert!(Daemon::start(bench.config()).unwrap_err().to_string().contains("another daemon runs there"));
    bench.stop();
    assert!(Client::connect(&bench.paths()).unwrap().is_none());
    bench.start();
    assert_eq!(bench.status().idle[0].share.limit.to_string(), "40%");
    let process = attach(&bench, "train");
    assert_eq!(process.control.read().unwrap().limit_permille, 400);
}

#[test]
fn what_was_learned_about_kernels_is_there_in_the_next_run() {
    let mut bench = Bench::new();
    let note = |key, duration_ns| Note { key, duration_ns, gap_ns: 3 };
    let process = attach(&bench, "train");
    assert!(process.notes.read().is_empty());
    process.notes.put(note(2, 500));
    drop(process);
    bench.wait("it to be gone", |status| status.gpus[0].tenants.is_empty());
    let process = attach(&bench, "another name of the same program");
    assert_eq!(process.notes.read(), [note(2, 500)]);
    process.notes.put(note(2, 700));
    process.notes.put(note(4, u32::MAX));
    bench.stop();
    bench.start();
    let mut known = attach(&bench, "train").notes.read();
    known.sort_by_key(|note| note.key);
    assert_eq!(known, [note(2, 700), note(4, u32::MAX)], "its daemon ended before it did");
}

#[test]
fn a_stale_socket_is_replaced_and_another_file_is_not() {
    let mut bench = Bench::new();
    bench.stop();
    let path = bench.paths().socket;
    drop(shm::Listener::bind(&path).unwrap());
    assert!(path.exists());
    bench.start();
    bench.status();
    bench.stop();
    std::fs::write(&path, "somebody's").unwrap();
    assert!(Daemon::start(bench.config()).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's");
}

#[test]
fn impossible_questions_are_rejected_with_a_reason() {
    let bench = Bench::new();
    let (owner, second) = (bench.client(), bench.client());
    register(&owner, "train", r#"{"request": "70%"}"#).unwrap();
    let check = |name: &str, share: &str, expected: &str| {
        let error = register(&second, name, share).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check("train", "{}", "there is a tenant `train` already");
    check("", "{}", "is not a name");
    check("a\nb", "{}", "is not a name");
    check(&"x".repeat(65), "{}", "is not a name");
    check("a", r#"{"gpu": "3"}"#, "there is no GPU 3");
    check("a", r#"{"gpu": "GPU-ffff"}"#, "there is no GPU `GPU-ffff`");
    check("a", r#"{"memory": "9GiB"}"#, "more than the GPU has, which is 8GiB");
    check("a", r#"{"request": "50%", "limit": "40%"}"#, "more than the limit");
    check("a", r#"{"priority": 10}"#, "priority 10");
    check("a", r#"{"request": "40%"}"#, "others were promised all but 30%");
    register(&second, "b", r#"{"request": "30%", "gpu": "0"}"#).unwrap();
    check("c", "{}", "registered a tenant already");
    let third = bench.client();
    assert!(set(&third, "nobody", r#"{"limit": "40%"}"#).unwrap_err().contains("no tenant `nobody`"));
    assert!(set(&third, "train", r#"{"limit": "40%"}"#).unwrap_err().contains("more than the limit"));
    assert!(set(&third, "train", r#"{"request": "80%"}"#).unwrap_err().contains("all but 70%"));
    assert!(set(&third, "train", r#"{"gpu": "0"}"#).unwrap_err().contains("cannot move"));
    assert!(set(&third, "train", r#"{"memory": "9GiB"}"#).unwrap_err().contains("more than the GPU has"));
}

#[test]
fn malformed_messages_affect_only_their_sender() {
    let bench = Bench::new();
    let owner = bench.client();
    register(&owner, "train", "{}").unwrap();
    let process = attach(&bench, "train");

    let garbage = bench.connect();
    garbage.send(b"GET / HTTP/1.1\r\n\r\n", &[]).unwrap();
    assert!(refusal(&garbage).contains("not a message"));
    let mut buffer = vec![0; 256];
    let hello = Message::Hello { pid: 1, tenant: None, flags: 0 }.encode(&mut buffer).unwrap().to_vec();
    let half = bench.connect();
    half.send(&hello[..hello.len() / 2], &[]).unwrap();
    assert!(refusal(&half).contains("longer or shorter"));
    let mut future = hello.clone();
    future[4] = 99;
    let other_version = bench.connect();
    other_version.send(&future, &[]).unwrap();
    assert!(refusal(&other_version).contains("speaks version 99"));
    let early = bench.connect();
    say(&early, Message::Attach { gpu: GPU, used_bytes: 0, charged_ns: 0 });
    assert!(refusal(&early).contains("did not send hello"));
    let twice = bench.connect();
    twice.send(&hello, &[]).unwrap();
    twice.send(&hello, &[]).unwrap();
    assert!(refusal(&twice).contains("sent hello twice"));
    let elsewhere = bench.connect();
    elsewhere.send(&hello, &[]).unwrap();
    say(&elsewhere, Message::Attach { gpu: [9; 16], used_bytes: 0, charged_ns: 0 });
    assert!(refusal(&elsewhere).contains("does not know this GPU"));
    let pretender = bench.connect();
    say(&pretender, Message::Reply { text: "{}" });
    assert!(refusal(&pretender).contains("only the daemon"));

    // Questions that make no sense are answered, and the connection stays.
    let asker = bench.connect();
    for question in ["", "{", "[]", "{\"fly\":{}}", "{\"set\":{}}", "{\"register\":{\"name\":3}}"] {
        say(&asker, Message::Request { text: question });
        let mut buffer = vec![0; MAX_MESSAGE];
        let length = asker.receive(&mut buffer, &mut FileList::new()).unwrap();
        let Ok(Message::Reply { text }) = Message::decode(&buffer[..length]) else { panic!("{question}") };
        assert!(text.contains("could not be read"), "{text}");
    }

    // One that asks and never listens, with files nobody asked for, is let go of.
    let deaf = bench.connect();
    deaf.set_timeout(Duration::from_millis(50)).unwrap();
    let question = Message::Request { text: r#"{"status":{}}"# }.encode(&mut buffer).unwrap().to_vec();
    for _ in 0..100_000 {
        if deaf.send(&question, &[deaf.as_fd()]).is_err() {
            break;
        }
    }

    let before = process.control.read().unwrap().heartbeat_ns;
    bench.wait("the heart to beat", |_| process.control.read().unwrap().heartbeat_ns > before);
    assert_eq!(bench.status().gpus[0].tenants.len(), 1);
}

#[test]
fn a_page_of_random_bytes_affects_only_its_writer() {
    let bench = Bench::new();
    let owner = bench.client();
    register(&owner, "train", "{}").unwrap();
    let (one, other) = (attach(&bench, "train"), std::process::Command::new("true").status());
    other.unwrap();
    for round in 0..200_u64 {
        let value = round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for word in [&one.page.charged_ns, &one.page.used_bytes, &one.page.busy_until_ns, &one.page.waiting_since_ns] {
            word.store(value, Ordering::Relaxed);
        }
        one.page.state.store(value as u32, Ordering::Relaxed);
        one.page.slot.store(value as u32, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(200));
    }
    let before = one.control.read().unwrap().heartbeat_ns;
    bench.wait("the heart to beat", |_| one.control.read().unwrap().heartbeat_ns > before);
}

#[test]
fn a_daemon_started_on_demand_ends_without_tenants() {
    // Long enough for somebody to come before it ends.
    let idle_exit = Some(Duration::from_secs(3));
    let [bench, other] = [(); 2].map(|()| Bench { folder: tempfile::tempdir().unwrap(), daemon: None });
    let daemon = Daemon::start(Config { idle_exit, ..bench.config() }).unwrap();
    let owner = bench.client();
    register(&owner, "train", "{}").unwrap();
    // By when one ends that was started later, this one has been there for longer than that.
    Daemon::start(Config { idle_exit, ..other.config() }).unwrap().join();
    assert!(!other.paths().socket.exists());
    assert_eq!(bench.status().idle.len(), 1, "it has a tenant");
    drop(owner);
    daemon.join();
    assert!(!bench.paths().socket.exists());
}
