//! What a profile is about: a digest of the model or the program, and the machine.

use config::profile::Date;
use config::{Kind, ModelSpec};
use harness::{Misuse, reason};
use policy::Span;
use ring::digest::{Context, SHA256};
use share_client::Gpus;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The digest of a model: its file, and what its deployment says of how it is run. What the file itself reads, such as
/// weights beside it, does not count.
pub(super) fn model_digest(spec: &ModelSpec) -> Result<String, Misuse> {
    let mut digest = Digest::new();
    match &spec.kind {
        Kind::Onnx { path } => digest.file(path).map_err(|error| unread(&spec.name, path, &error))?,
        Kind::Python { path, class } => {
            digest.file(path).map_err(|error| unread(&spec.name, path, &error))?;
            digest.word(class.as_deref().unwrap_or_default().as_bytes());
        }
        Kind::Virtual { latency } => {
            let text = |span: Span| span.to_string();
            digest.word(text(latency.alpha).as_bytes());
            digest.word(text(latency.beta).as_bytes());
        }
    }
    digest.word(&spec.threads.to_le_bytes());
    for (name, value) in &spec.env {
        digest.word(name.as_bytes());
        digest.word(value.as_bytes());
    }
    Ok(digest.text())
}

fn unread(model: &str, path: &Path, error: &std::io::Error) -> Misuse {
    let (path, why) = (path.display(), reason(error));
    let text = "profile it on the machine where its file is, for a profile is of one file";
    Misuse(format!("read {path}, the file of model `{model}`: {why}; {text}"))
}

/// The digest of a program: what is typed to run it, and the files that are named there.
pub(super) fn program_digest(words: &[OsString]) -> String {
    let mut digest = Digest::new();
    for word in words {
        digest.word(word.as_encoded_bytes());
        // What is no file, or cannot be read, is a word and nothing else.
        if Path::new(word).is_file() {
            let _ = digest.file(Path::new(word));
        }
    }
    digest.text()
}

struct Digest(Context);

impl Digest {
    fn new() -> Digest {
        Digest(Context::new(&SHA256))
    }

    /// With its length before it, so that two words are never one.
    fn word(&mut self, word: &[u8]) {
        self.0.update(&(word.len() as u64).to_le_bytes());
        self.0.update(word);
    }

    fn file(&mut self, path: &Path) -> std::io::Result<()> {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                length => self.0.update(&buffer[..length]),
            }
        }
    }

    fn text(self) -> String {
        let digits: String = self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digits}")
    }
}

/// This machine, for models whose share of a GPU is not known: its processor, and its GPUs, which they may use all the
/// same.
pub(super) fn machine() -> String {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut machine = format!("{name}, {cores} cores");
    let Gpus { gpus, driver, .. } = Gpus::find();
    for gpu in gpus {
        machine += &format!(", unshared {}", gpu.name);
    }
    machine + &driver.map_or(String::new(), |driver| format!(" with driver {driver}"))
}

/// Today, in Greenwich.
pub(super) fn today() -> Date {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Date::from_unix_seconds(passed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_changes_with_the_file_and_with_how_it_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.py");
        let spec = |more: &str| -> ModelSpec {
            let text = format!("{{\"name\": \"m\", \"kind\": \"python\", \"path\": {path:?}{more}}}");
            serde_json::from_str(&text).unwrap()
        };
        let missing = model_digest(&spec("")).unwrap_err().to_string();
        assert!(missing.contains("no such file or folder; profile it on the machine where its file is"), "{missing}");
        std::fs::write(&path, "one").unwrap();
        let first = model_digest(&spec("")).unwrap();
        assert_eq!((first.len(), &first[..7]), (71, "sha256:"));
        assert_eq!(model_digest(&spec(", \"slo\": \"5ms\", \"version\": 2")).unwrap(), first);
        for more in [", \"threads\": 2", ", \"class\": \"A\"", ", \"env\": {\"A\": \"b\"}"] {
            assert_ne!(model_digest(&spec(more)).unwrap(), first, "{more}");
        }
        let words = |words: &[&str]| -> Vec<OsString> { words.iter().map(OsString::from).collect() };
        let program = words(&["python", path.to_str().unwrap()]);
        let before = program_digest(&program);
        std::fs::write(&path, "two").unwrap();
        assert_ne!(model_digest(&spec("")).unwrap(), first);
        assert_ne!(program_digest(&program), before);
        assert_ne!(program_digest(&words(&["a", "b"])), program_digest(&words(&["ab"])));
    }
}
