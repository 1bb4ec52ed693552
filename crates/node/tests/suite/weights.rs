//! Workers that have their weights together.

use crate::harness::{Bench, Event, WORKER, describe, floats, values};
use config::ModelSpec;
use rpc::{FromNode, ToNode, WorkerId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OTHER: WorkerId = WorkerId(2);

const SHARING: &str = "
def load(self):
    import weft
    def load():
        with open(os.environ['LOADS'], 'a') as file:
            file.write('x')
        return {'w': np.full(1 << 16, 3, dtype=np.float32)}
    self.w = weft.shared(load)['w']

def predict(self, inputs):
    if inputs['x'][0, 0] < 0:
        os.kill(os.getpid(), 9)
    return inputs['x'] * self.w[0]
";

fn sharing(bench: &Bench) -> ModelSpec {
    let mut spec = bench.python(SHARING);
    spec.env.insert("LOADS".into(), loads_file(bench).to_str().unwrap().into());
    spec
}

fn loads_file(bench: &Bench) -> PathBuf {
    bench.folder.path().join("loads")
}

fn loads(bench: &Bench) -> usize {
    std::fs::read_to_string(loads_file(bench)).unwrap().len()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("run/weights")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn stop(bench: &Bench, worker: WorkerId) {
    bench.node().order(ToNode::Stop { worker });
    match bench.event() {
        Event::Told(FromNode::Stopped { worker: stopped }) => assert_eq!(stopped, worker),
        other => panic!("expected Stopped, came {}", describe(&other)),
    }
}

#[test]
fn weights_are_loaded_once_and_go_with_the_last_worker() {
    let bench = Bench::new();
    let spec = sharing(&bench);
    bench.start(spec.clone());
    bench.node().order(ToNode::Start { worker: OTHER, spec: Arc::new(spec) });
    bench.ready();
    assert_eq!(loads(&bench), 1);
    assert_eq!(values(&bench.ask(vec![floats(&[1, 1], &[2.0])])[0]), [6.0]);

    // The one that loaded them is killed, and finds them again with the other.
    let batch = bench.send(vec![vec![floats(&[1, 1], &[-1.0])]], &[1]);
    let (reason, _) = bench.lost();
    assert!(reason.contains("SIGKILL"), "{reason} in batch {batch}");
    assert!(matches!(bench.event(), Event::Answered(_, Err(_))));
    bench.ready();
    assert_eq!(values(&bench.ask(vec![floats(&[1, 1], &[2.0])])[0]), [6.0]);
    assert_eq!(loads(&bench), 1);

    stop(&bench, WORKER);
    assert_eq!(files(bench.folder.path()).iter().filter(|name| name.ends_with(".weights")).count(), 1);
    stop(&bench, OTHER);
    assert_eq!(files(bench.folder.path()), [""; 0]);
}

#[test]
fn a_node_removes_what_a_killed_one_left() {
    let bench = Bench::with(|config| {
        let folder = config.directory.join("weights");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        for name in ["a.weights", "a.lock", "b.new", "c.socket", "d.lock", "notes.txt"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
    });
    assert_eq!(files(bench.folder.path()), ["notes.txt"]);
}
