//! Stores on a disk that fails, and with files that were damaged.

use super::disk::{Disk, Draft};
use super::format::{self, Contents};
use super::*;
use config::{Kind, ModelSpec, Workers};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

fn stored(name: &str, version: u32) -> Stored {
    let text = format!(r#"{{"name": "{name}", "version": {version}, "kind": "onnx", "path": "x.onnx"}}"#);
    Stored { spec: serde_json::from_str(&text).unwrap(), loaded: true }
}

fn readable(store: &Store) -> Vec<Stored> {
    store.all().into_iter().filter_map(|record| record.content.ok()).collect()
}

fn write_file(folder: &Path, bytes: &[u8]) {
    std::fs::write(folder.join(FILE), bytes).unwrap();
}

#[test]
fn what_is_put_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/state");
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.all(), []);
    store.put(&[stored("b", 1), stored("a", 2)]).unwrap();
    store.put(&[stored("a", 10)]).unwrap();
    store.remove(&[("b".into(), 1)]).unwrap();
    let Err(error) = Store::open(&path) else { panic!("one process at a time") };
    assert!(format!("{error:#}").contains("another `weft` is running with them"), "{error:#}");
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(readable(&store), [stored("a", 2), stored("a", 10)]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join(FILE))), (0o700, 0o600));
}

#[test]
fn a_folder_that_was_open_to_others_is_closed_unless_it_is_theirs_too() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |mode| std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
    let found = || std::fs::metadata(folder.path()).unwrap().permissions().mode() & 0o7777;
    mode(0o755);
    drop(Store::open(folder.path()).unwrap());
    assert_eq!(found(), 0o700);
    mode(0o1777);
    let Err(error) = Store::open(folder.path()) else { panic!("what is in it may be anybody's") };
    assert!(format!("{error:#}").contains("everybody may write to it (mode 1777)"), "{error:#}");
    assert_eq!(found(), 0o1777, "as /tmp has it");
    mode(0o755);
    std::fs::write(folder.path().join("weft.toml"), "").unwrap();
    drop(Store::open(folder.path()).unwrap());
    assert_eq!(found(), 0o755, "a project's folder");
}

#[test]
fn a_bad_record_is_one_models_trouble_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let good = format::write(&[Line::of(&stored("good", 1)).unwrap()]);
    let good = String::from_utf8(good).unwrap().lines().nth(1).unwrap().to_owned();
    let bad =
        format::adopt("nearest:0000000003", r#"{"loaded":true,"spec":{"name":"nearest","version":3,"kind":"x"}}"#);
    let newer = String::from_utf8(format::adopt("late:1", "{}")).unwrap().replace("\"format\":1", "\"format\":7");
    let newer = format::sealed(newer.split_once(' ').unwrap().1);
    let garbage = b"\xff\xfe\x00 what".to_vec();
    let raw = [good.clone().into_bytes(), bad.clone(), newer.clone(), garbage.clone()];
    write_file(folder.path(), &format::write(&format::lines(&raw)));
    let mut store = Store::open(folder.path()).unwrap();
    let why = |store: &Store, name: &str| {
        let found = store.all().into_iter().find(|record| record.name == name).unwrap();
        (found.version, found.content.unwrap_err())
    };
    assert_eq!(readable(&store), [stored("good", 1)]);
    assert!(why(&store, "nearest").1.contains("kind `x` is not one of") && why(&store, "nearest").0 == 3);
    assert_eq!(why(&store, "late").1, "it was written by a newer Weft, in format 7; this one reads 1");
    assert_eq!(why(&store, "unreadable-line-5").1, "the line is not text");
    store.put(&[stored("other", 1)]).unwrap();
    let bytes = std::fs::read(folder.path().join(FILE)).unwrap();
    for line in [&bad, &newer, &garbage] {
        assert!(bytes.split(|byte| *byte == b'\n').any(|found| found == *line), "it is written back as it was");
    }
    store.put(&[stored("nearest", 3)]).unwrap();
    store.remove(&[("late".into(), 1), ("unreadable-line-5".into(), 1)]).unwrap();
    drop(store);
    let all = Store::open(folder.path()).unwrap().all();
    assert!(all.len() == 3 && all.iter().all(|record| record.content.is_ok()), "{all:?}");
}

#[test]
fn an_empty_file_or_garbage_is_never_taken_for_a_new_store() {
    for (file, bytes) in
        [(FILE, &b""[..]), (FILE, &b"hello\n"[..]), (legacy::FILE, &b""[..]), (legacy::FILE, &[7; 9000])]
    {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(file), bytes).unwrap();
        let Err(error) = Store::open(folder.path()) else { panic!("{file} with {} bytes was taken", bytes.len()) };
        let error = format!("{error:#}");
        assert!(error.contains("`weft store repair --state"), "{error}");
        assert_eq!(std::fs::read(folder.path().join(file)).unwrap(), bytes, "it is left as it is");
        assert!(!inspect(folder.path()).unwrap().is_well());
        let aside = repair(folder.path()).unwrap().aside;
        // There is nothing to keep of an empty text file.
        assert_eq!(
            aside.map(|aside| std::fs::read(aside).unwrap()),
            (file, bytes).ne(&(FILE, b"")).then(|| bytes.to_vec())
        );
        assert_eq!(Store::open(folder.path()).unwrap().all(), []);
    }
    let folder = tempfile::tempdir().unwrap();
    write_file(folder.path(), b"weft deployments 2\n");
    let error = format!("{:#}", Store::open(folder.path()).err().unwrap());
    assert!(error.contains("written by a newer Weft, in format 2"), "{error}");
}

#[test]
fn a_file_cut_at_any_byte_is_noticed_and_repaired_to_what_is_left() {
    let deployments = [stored("a", 1), stored("b", 1), stored("c", 7)];
    let whole = format::write(&deployments.iter().map(|stored| Line::of(stored).unwrap()).collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    for length in 0..whole.len() {
        write_file(folder.path(), &whole[..length]);
        let Err(error) = Store::open(folder.path()) else { panic!("cut at {length}") };
        assert!(format!("{error:#}").contains("weft store repair"), "{error:#}");
        let aside = repair(folder.path()).unwrap().aside;
        let store = Store::open(folder.path()).unwrap();
        let left = whole[..length].iter().filter(|byte| **byte == b'\n').count().saturating_sub(1).min(3);
        let kept = readable(&store);
        assert!(deployments.starts_with(&kept) && kept.len() >= left, "cut at {length}: {} kept", kept.len());
        if let Some(aside) = aside {
            std::fs::remove_file(aside).unwrap();
        }
    }
}

#[test]
fn a_changed_byte_costs_at_most_the_record_it_is_in() {
    let deployments = [stored("a", 1), stored("ab", 1), stored("c", 7)];
    let whole = format::write(&deployments.iter().map(|stored| Line::of(stored).unwrap()).collect::<Vec<_>>());
    for place in 0..whole.len() {
        for change in [1, 2, 0x20, 0x80, whole[place] ^ b'\n'] {
            let mut bytes = whole.clone();
            bytes[place] ^= change;
            if bytes == whole {
                continue;
            }
            let Contents { lines, damage } = format::read(&bytes);
            let good: Vec<_> = lines.iter().filter_map(|line| line.record.content.as_ref().ok()).collect();
            assert!(good.iter().all(|stored| deployments.contains(stored)), "byte {place} became something else");
            // A line more or less than there were touches two.
            let most = if whole[place] == b'\n' { 2 } else { 1 };
            assert!(good.len() + most >= deployments.len(), "byte {place} ^ {change}: {} left", good.len());
            assert!(damage.is_some() || lines.len() >= deployments.len(), "byte {place}: a loss without a word");
            let mut names: Vec<_> = lines.iter().map(|line| (&line.record.name, line.record.version)).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), lines.len(), "each can be undeployed by its name");
        }
    }
}

#[test]
fn what_an_older_weft_stored_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(legacy::FILE);
    // The second is what `weft set nearest --replicas 1..4` made of `--workers 0..4 --keep-alive 300s`: nothing could
    // read it.
    let rows = [
        (
            "magika:0000000001",
            r#"{"spec":{"name":"magika","version":1,"kind":"onnx","path":"/m.onnx"},"loaded":false}"#,
        ),
        (
            "nearest:0000000001",
            r#"{"spec":{"name":"nearest","version":1,"kind":"python","path":"/n.py","workers":"1..4","keep_alive":"300s"},"loaded":true}"#,
        ),
        ("odd:0000000012", "not JSON"),
    ];
    let database = redb::Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    for (key, value) in rows {
        let table = redb::TableDefinition::<&str, &str>::new("models");
        write.open_table(table).unwrap().insert(key, value).unwrap();
    }
    write.commit().unwrap();
    assert!(Store::open(folder.path()).is_err(), "the older Weft is running");
    drop(database);
    let before = std::fs::read(&path).unwrap();
    assert_eq!(inspect(folder.path()).unwrap().records.len(), 3);
    for _ in 0..2 {
        let all = Store::open(folder.path()).unwrap().all();
        let [magika, nearest, odd] = &all[..] else { panic!("{all:?}") };
        assert!(!magika.content.as_ref().unwrap().loaded);
        assert_eq!(nearest.content.as_ref().unwrap().spec.workers, Workers::new(1, 4).unwrap());
        assert!(odd.version == 12 && odd.content.is_err());
    }
    assert!(!path.exists());
    let kept = std::fs::read(folder.path().join("weft.redb.migrated")).unwrap();
    assert_eq!(kept.len(), before.len(), "the old file is kept");
}

/// A disk in memory, which knows what a crash would leave of it.
#[derive(Clone, Default)]
struct Faulty(Arc<Mutex<Inner>>);

#[derive(Clone, Default)]
struct Inner {
    /// What files hold, and what of that is on disk.
    files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names as programs see them, and as they are on disk.
    names: BTreeMap<String, usize>,
    names_on_disk: BTreeMap<String, usize>,
    /// Steps left until something goes wrong: a byte, a file, a rename, a wait for the disk.
    left: Option<usize>,
    crash: bool,
    went_wrong: bool,
    /// Whether the disk says that it has written what it has not.
    lies: bool,
}

impl Inner {
    /// Counts a step.
    fn step(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => {
                self.went_wrong = true;
                Err(ErrorKind::StorageFull.into())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Disk for Faulty {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let inner = self.0.lock().unwrap();
        Ok(inner.names.get(name).map(|file| inner.files[*file].0.clone()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Draft>> {
        let mut inner = self.0.lock().unwrap();
        inner.step()?;
        inner.files.push((Vec::new(), Vec::new()));
        let file = inner.files.len() - 1;
        inner.names.insert(name.into(), file);
        Ok(Box::new((self.clone(), file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        inner.step()?;
        let file = inner.names.remove(from).ok_or(ErrorKind::NotFound)?;
        inner.names.insert(to.into(), file);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        inner.step()?;
        inner.names_on_disk = inner.names.clone();
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        if inner.crash {
            inner.step()?;
        }
        inner.names.remove(name).map(drop).ok_or(ErrorKind::NotFound.into())
    }
}

impl Draft for (Faulty, usize) {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.0.0.lock().unwrap();
        for byte in bytes {
            inner.step()?;
            inner.files[self.1].0.push(*byte);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.0.0.lock().unwrap();
        inner.step()?;
        if !inner.lies {
            inner.files[self.1].1 = inner.files[self.1].0.clone();
        }
        Ok(())
    }
}

impl Faulty {
    /// What there may be after a crash: names with or without the last changes, files with as much of what was not on
    /// disk as it pleases, or with nothing where it was to be.
    fn after_a_crash(&self) -> Vec<Faulty> {
        let inner = self.0.lock().unwrap();
        let mut found = Vec::new();
        for names in [&inner.names, &inner.names_on_disk] {
            for part in 0..4 {
                let kept = |(seen, on_disk): &(Vec<u8>, Vec<u8>)| {
                    let torn = match part {
                        0 => on_disk.clone(),
                        1 => seen.clone(),
                        2 => seen[..on_disk.len().max(seen.len() / 2)].to_vec(),
                        _ => [on_disk.clone(), vec![0; seen.len() - on_disk.len()]].concat(),
                    };
                    (torn.clone(), torn)
                };
                let files = inner.files.iter().map(kept).collect();
                let (names, names_on_disk) = (names.clone(), names.clone());
                found.push(Faulty(Arc::new(Mutex::new(Inner { files, names, names_on_disk, ..Inner::default() }))));
            }
        }
        found
    }

    fn open(&self) -> Result<Store> {
        Store::read(Place { folder: "/nowhere".into(), disk: Box::new(self.clone()), held: Held::Nothing })
    }

    fn arm(&self, left: Option<usize>, crash: bool) {
        let mut inner = self.0.lock().unwrap();
        (inner.left, inner.crash, inner.went_wrong) = (left, crash, false);
    }
}

type Change = fn(&mut Store) -> Result<()>;

const CHANGES: [(&str, Change); 4] = [
    ("deploy", |store| store.put(&[stored("new", 1)])),
    ("replace", |store| store.put(&[Stored { loaded: false, ..stored("one", 1) }])),
    ("change two", |store| store.put(&[Stored { loaded: false, ..stored("one", 1) }, stored("two", 2)])),
    ("undeploy", |store| store.remove(&[("one".into(), 1)])),
];

/// A disk with a store on it, one record of which nobody can read.
fn with_two(lies: bool) -> Faulty {
    let disk = Faulty::default();
    let raw = [b"garbage".to_vec()].into_iter();
    let raw: Vec<_> = raw.chain(["one", "two"].map(|name| Line::of(&stored(name, 1)).unwrap().raw)).collect();
    disk::replace(&disk, FILE, &format::write(&format::lines(&raw))).map_err(|error| error.error).unwrap();
    disk.0.lock().unwrap().lies = lies;
    disk
}

/// Makes a change go wrong at every step and calls `check` with what was before, what was to be, and the disk.
fn at_every_step(
    lies: bool,
    crash: bool,
    mut check: impl FnMut(&str, &[Record], &[Record], &mut Store, &Faulty, bool),
) {
    for (name, change) in CHANGES {
        let mut steps = 0;
        loop {
            let disk = with_two(lies);
            let mut store = disk.open().unwrap();
            let before = store.all();
            let mut intended = Store { lines: store.lines.clone(), place: None };
            change(&mut intended).unwrap();
            disk.arm(Some(steps), crash);
            let done = change(&mut store).is_ok();
            let went_wrong = disk.0.lock().unwrap().went_wrong;
            assert_eq!(done, !went_wrong, "{name}, step {steps}");
            check(&format!("{name}, step {steps}"), &before, &intended.all(), &mut store, &disk, done);
            if done {
                // Beside its bytes, a file is made, waited for and renamed, and its name is waited for.
                assert_eq!(steps, format::write(&intended.lines).len() + 4, "{name}: every byte is a step");
                break;
            }
            steps += 1;
        }
    }
}

#[test]
fn a_crash_at_any_byte_leaves_the_old_or_the_new_state() {
    at_every_step(false, true, |step, before, after, _, disk, done| {
        for disk in disk.after_a_crash() {
            let found = disk.open().unwrap_or_else(|error| panic!("{step}: {error:#}")).all();
            assert!(found == after || found == before && !done, "{step}: {found:?}");
        }
    });
}

#[test]
fn the_disk_of_these_tests_finds_a_file_that_was_renamed_before_it_was_on_disk() {
    let mut lost = 0;
    at_every_step(true, true, |_, _, _, _, disk, _| {
        lost += disk.after_a_crash().iter().filter(|disk| disk.open().is_err()).count();
    });
    assert!(lost > 0);
}

#[test]
fn a_full_disk_is_told_loses_nothing_and_works_again_when_there_is_room() {
    at_every_step(false, false, |step, before, after, store, disk, done| {
        let change = CHANGES.iter().find(|(name, _)| step.starts_with(name)).unwrap().1;
        if !done {
            assert_eq!(store.all(), before, "{step}");
            let again = format!("{:#}", change(store).unwrap_err());
            assert!(again.contains("make room on that disk and try again"), "{again}");
            let found = disk.open().unwrap_or_else(|error| panic!("{step}: {error:#}")).all();
            assert!(found == before || found == after, "{step}: {found:?}");
            disk.arm(None, false);
            change(store).unwrap();
        }
        assert_eq!(store.all(), after, "{step}");
        assert_eq!(disk.open().unwrap().all(), after, "{step}");
    });
}

/// Specifications as they could be built by anybody, most of which make sense.
fn specs() -> impl Strategy<Value = ModelSpec> {
    let path = prop_oneof![4 => "[ -~]{1,20}".prop_map(PathBuf::from), 1 => any::<String>().prop_map(PathBuf::from),
        1 => Just({ use std::os::unix::ffi::OsStringExt; std::ffi::OsString::from_vec(vec![0xff, b'x']).into() })];
    let span = || {
        let nanos =
            prop_oneof![0..10_000_000_000u64, any::<u64>(), (0..400u64).prop_map(|days| days * 86_400_000_000_000)];
        nanos.prop_map(policy::Span::from_nanos)
    };
    let kind = prop_oneof![
        path.clone().prop_map(|path| Kind::Onnx { path }),
        (path, proptest::option::of(any::<String>())).prop_map(|(path, class)| Kind::Python { path, class }),
        (span(), span()).prop_map(|(alpha, beta)| Kind::Virtual { latency: config::Line { alpha, beta } }),
    ];
    let share =
        (0..12u8, 0..1001u32, 0..1001u32, proptest::option::of(span())).prop_map(|(priority, request, limit, slo)| {
            let percent = |permille| config::Percent::from_permille(permille).unwrap();
            config::Share {
                priority,
                request: percent(request),
                limit: percent(limit),
                slo,
                ..config::Share::default()
            }
        });
    let name = prop_oneof![8 => "[a-zA-Z0-9._-]{1,20}", 1 => any::<String>()];
    let slo = (100_000..3_600_000_000_000u64).prop_map(policy::Span::from_nanos);
    let numbers = (0..3u32, 0..200usize, 0..3usize, 0..3usize);
    let rest = (workers(), proptest::option::of(span()), proptest::option::weighted(0.3, share));
    let env = proptest::collection::btree_map("[A-Z=]{0,4}", any::<String>(), 0..3);
    (name, kind, slo, numbers, rest, env).prop_map(
        |(name, kind, slo, (version, max_batch, threads, queue), rest, env)| {
            let (workers, keep_alive, share) = rest;
            let (inputs, outputs) = (Vec::new(), Vec::new());
            ModelSpec {
                name,
                version,
                kind,
                slo,
                max_batch,
                workers,
                keep_alive,
                threads,
                queue,
                env,
                share,
                device: config::Device::Auto,
                inputs,
                outputs,
                warmup: None,
            }
        },
    )
}

fn workers() -> impl Strategy<Value = Workers> {
    (0..5usize, 1..9usize).prop_map(|(min, more)| Workers::new(min, min + more - 1).unwrap_or(Workers::ONE))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever a deployment and any number of changes to its workers lead to is read back as it is.
    #[test]
    fn what_is_accepted_can_be_read_again(spec in specs(), changes in proptest::collection::vec(workers(), 0..4), loaded: bool) {
        let mut reached = vec![spec];
        for workers in changes {
            if let Ok(changed) = reached[0].with_workers(workers) {
                prop_assert_eq!(changed.keep_alive, reached[0].keep_alive);
                reached.push(changed);
            }
        }
        for spec in reached {
            let stored = Stored { spec, loaded };
            let disk = Faulty::default();
            let put = disk.open().unwrap().put(std::slice::from_ref(&stored));
            prop_assert_eq!(put.is_ok(), stored.spec.check().is_ok());
            if put.is_ok() {
                prop_assert_eq!(readable(&disk.open().unwrap()), [stored]);
            }
        }
    }
}
