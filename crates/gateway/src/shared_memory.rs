//! Shared memory that clients registered, so that requests can name a place in it instead of carrying tensors.
//!
//! A region is a file of the machine's shared memory, as `shm_open` makes them. It is read and written as a file and
//! never mapped: a client that truncates its region gets an error and cannot take the server down.
//!
//! A server can open objects of others as well: every program of its user keeps its shared memory in the same folder. So
//! it opens only those whose names it was told clients may use, and none where it was told nothing. Weft's own shared
//! memory has no names at all.

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

/// Where `shm_open` keeps its files.
const FOLDER: &str = "/dev/shm";
/// The longest name of a file.
const KEY_BYTES_MAX: usize = 255;
/// The longest name of a region.
const NAME_BYTES_MAX: usize = 1024;
/// The most regions that may be registered at a time.
const REGIONS_MAX: usize = 4096;
/// The most that one tensor may take from a region: its bytes are copied.
const READ_BYTES_MAX: u64 = 2 << 30;

/// What clients registered, by name.
pub struct Regions {
    folder: PathBuf,
    /// Keys that clients may name; a `*` at the end stands for any end.
    allowed: RwLock<Vec<String>>,
    open: RwLock<BTreeMap<String, Arc<Open>>>,
}

/// A region as it was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// What requests call it.
    pub name: String,
    /// What the system calls it.
    pub key: String,
    /// Where in the system's object it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

struct Open {
    region: Region,
    file: File,
}

impl Default for Regions {
    fn default() -> Regions {
        Regions::within(FOLDER)
    }
}

impl Regions {
    /// Regions whose files are in this folder.
    pub fn within(folder: impl AsRef<Path>) -> Regions {
        Regions { folder: folder.as_ref().to_path_buf(), allowed: RwLock::default(), open: RwLock::default() }
    }

    /// Lets clients register objects with these keys, such as `/camera` or `/camera_*`, and no others.
    pub fn allow(&self, keys: impl IntoIterator<Item = impl Into<String>>) {
        *self.allowed.write().expect("no panic holds this lock") = keys.into_iter().map(Into::into).collect();
    }

    /// Whether a client may register an object; if not, what to do about it.
    fn permit(&self, file_name: &str) -> Result<(), String> {
        let allowed = self.allowed.read().expect("no panic holds this lock");
        let how = "list the keys that clients may use as `allow` under [shared_memory], such as [\"/camera_*\"]";
        if allowed.is_empty() {
            return Err(format!("this server takes no shared memory; {how}"));
        }
        let covers = |key: &String| {
            let key = key.strip_prefix('/').unwrap_or(key);
            key.strip_suffix('*').map_or(key == file_name, |start| file_name.starts_with(start))
        };
        // Semaphores are files in the same folder, and no memory of anybody's.
        if file_name.starts_with("sem.") || !allowed.iter().any(covers) {
            return Err(format!("`/{file_name}` is not a key that clients may use here; {how}"));
        }
        Ok(())
    }

    /// Makes part of a shared memory object known under a name.
    pub fn register(&self, name: &str, key: &str, offset: u64, bytes: u64) -> Result<(), String> {
        let refuse = |problem: String| Err(format!("shared memory region `{name}`: {problem}"));
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(format!("a shared memory region needs a name of 1 to {NAME_BYTES_MAX} bytes"));
        }
        let file_name = key.strip_prefix('/').unwrap_or(key);
        let odd = |byte: u8| byte == b'/' || byte == 0;
        if file_name.is_empty() || file_name.len() > KEY_BYTES_MAX || file_name.bytes().any(odd) {
            return refuse(format!("`{key}` is not a key; one looks like `/name`, with no other slash"));
        }
        if file_name == "." || file_name == ".." {
            return refuse(format!("`{key}` is not a key"));
        }
        if let Err(problem) = self.permit(file_name) {
            tracing::warn!(region = name, key, "shared memory was not registered: {problem}");
            return refuse(problem);
        }
        if bytes == 0 {
            return refuse("it must hold at least one byte".into());
        }
        let Some(end) = offset.checked_add(bytes) else {
            return refuse(format!("{bytes} bytes from {offset} on are more than can be counted"));
        };
        // A pipe would wait for its other end, and a link could lead anywhere.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(self.folder.join(file_name), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::LOOP) => return refuse(format!("`{key}` is a link")),
            Err(rustix::io::Errno::NOENT) if !self.folder.is_dir() => {
                let folder = self.folder.display();
                return refuse(format!(
                    "there is no {folder} here; send tensors in the request, or mount a tmpfs there"
                ));
            }
            Err(error) => return refuse(format!("`{key}` cannot be opened: {}", std::io::Error::from(error))),
        };
        match file.metadata() {
            Ok(facts) if !facts.is_file() => return refuse(format!("`{key}` is not a shared memory object")),
            // A second name could be for an object whose first name is not allowed.
            Ok(facts) if facts.nlink() > 1 => return refuse(format!("`{key}` has another name as well")),
            Ok(facts) if facts.len() < end => {
                return refuse(format!("`{key}` holds {} bytes; {bytes} from {offset} on do not fit", facts.len()));
            }
            Ok(_) => {}
            Err(error) => return refuse(format!("`{key}` cannot be read: {error}")),
        }
        let mut open = self.open.write().expect("no panic holds this lock");
        if open.contains_key(name) {
            return refuse("it is registered already".into());
        }
        if open.len() >= REGIONS_MAX {
            return refuse(format!("{REGIONS_MAX} are registered already, which is as many as may"));
        }
        let region = Region { name: name.to_string(), key: key.to_string(), offset, bytes };
        open.insert(name.to_string(), Arc::new(Open { region, file }));
        Ok(())
    }

    /// Forgets a region, or all of them. A name that is not known is no error.
    pub fn unregister(&self, name: Option<&str>) {
        let mut open = self.open.write().expect("no panic holds this lock");
        match name {
            Some(name) => drop(open.remove(name)),
            None => open.clear(),
        }
    }

    /// One region, or all of them in the order of their names.
    pub fn status(&self, name: Option<&str>) -> Result<Vec<Region>, String> {
        match name {
            Some(name) => Ok(vec![self.find(name)?.region.clone()]),
            None => {
                let open = self.open.read().expect("no panic holds this lock");
                Ok(open.values().map(|open| open.region.clone()).collect())
            }
        }
    }

    /// Copies bytes out of a region.
    pub fn read(&self, name: &str, offset: u64, bytes: u64) -> Result<Bytes, String> {
        let open = self.find(name)?;
        let start = place(&open.region, offset, bytes)?;
        if bytes > READ_BYTES_MAX {
            return Err(format!("shared memory region `{name}`: a tensor may take at most {READ_BYTES_MAX} bytes"));
        }
        let mut data = vec![0; bytes as usize];
        open.file.read_exact_at(&mut data, start).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => format!("shared memory region `{name}` was cut short by its owner"),
            _ => format!("shared memory region `{name}` cannot be read: {error}"),
        })?;
        Ok(data.into())
    }

    /// Copies bytes into a region, where `limit` bytes are set aside for them.
    pub fn write(&self, name: &str, offset: u64, limit: u64, data: &[u8]) -> Result<(), String> {
        let open = self.find(name)?;
        let start = place(&open.region, offset, limit)?;
        let bytes = data.len() as u64;
        if bytes > limit {
            return Err(format!("shared memory region `{name}`: {bytes} bytes do not fit in the {limit} set aside"));
        }
        // A write past the end would make the file longer.
        let holds = open.file.metadata().map_or(0, |facts| facts.len());
        if holds < start.saturating_add(bytes) {
            return Err(format!("shared memory region `{name}` was cut short by its owner"));
        }
        let failed = |error| format!("shared memory region `{name}` cannot be written: {error}");
        open.file.write_all_at(data, start).map_err(failed)
    }

    fn find(&self, name: &str) -> Result<Arc<Open>, String> {
        let open = self.open.read().expect("no panic holds this lock");
        open.get(name).cloned().ok_or_else(|| format!("there is no shared memory region `{name}`"))
    }
}

/// Where in the file a part of a region begins, if it is within the region.
fn place(region: &Region, offset: u64, bytes: u64) -> Result<u64, String> {
    match offset.checked_add(bytes) {
        Some(end) if end <= region.bytes => Ok(region.offset + offset),
        _ => Err(format!(
            "shared memory region `{}` holds {} bytes; {bytes} from {offset} on do not fit",
            region.name, region.bytes
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder() -> (tempfile::TempDir, Regions) {
        let folder = tempfile::tempdir().unwrap();
        let regions = Regions::within(folder.path());
        regions.allow(["/*"]);
        (folder, regions)
    }

    #[test]
    fn what_is_written_can_be_read_and_stays_within_its_region() {
        let (folder, regions) = folder();
        std::fs::write(folder.path().join("a"), [7; 64]).unwrap();
        regions.register("region", "/a", 16, 32).unwrap();
        regions.write("region", 4, 8, b"abcd").unwrap();
        assert_eq!(&regions.read("region", 3, 6).unwrap()[..], b"\x07abcd\x07");
        assert_eq!(&std::fs::read(folder.path().join("a")).unwrap()[20..24], b"abcd");
        let check = |outcome: Result<(), String>, expected: &str| {
            let message = outcome.unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        check(regions.read("region", 1, 32).map(drop), "holds 32 bytes; 32 from 1 on do not fit");
        check(regions.read("region", u64::MAX, 32).map(drop), "do not fit");
        check(regions.write("region", 28, 8, b"x"), "holds 32 bytes; 8 from 28 on do not fit");
        check(regions.write("region", 0, 2, b"abc"), "3 bytes do not fit in the 2 set aside");
        check(regions.read("other", 0, 1).map(drop), "there is no shared memory region `other`");
        check(regions.register("region", "/a", 0, 1), "registered already");
        let expected = Region { name: "region".into(), key: "/a".into(), offset: 16, bytes: 32 };
        assert_eq!(regions.status(None).unwrap(), std::slice::from_ref(&expected));
        assert_eq!(regions.status(Some("region")).unwrap(), [expected]);
        regions.unregister(Some("other"));
        regions.unregister(None);
        assert_eq!(regions.status(None).unwrap(), []);
    }

    #[test]
    fn only_a_regular_file_of_the_folder_that_is_long_enough_is_a_region() {
        let (folder, regions) = folder();
        std::fs::write(folder.path().join("a"), [0; 8]).unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        symlink(folder.path().join("a"), folder.path().join("link")).unwrap();
        let check = |key: &str, offset: u64, bytes: u64, expected: &str| {
            let message = regions.register("region", key, offset, bytes).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        check("", 0, 1, "is not a key");
        check("/", 0, 1, "is not a key");
        check("..", 0, 1, "is not a key");
        check("/../a", 0, 1, "with no other slash");
        check("/folder/a", 0, 1, "with no other slash");
        check("/a\0", 0, 1, "is not a key");
        check("/missing", 0, 1, "cannot be opened: No such file");
        check("/link", 0, 1, "is a link");
        check("/folder", 0, 1, "cannot be opened: Is a directory");
        check("/a", 0, 9, "holds 8 bytes; 9 from 0 on do not fit");
        check("/a", 8, 1, "do not fit");
        check("/a", u64::MAX, 1, "more than can be counted");
        check("/a", 0, 0, "at least one byte");
    }

    #[test]
    fn only_keys_that_the_server_allows_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let regions = Regions::within(folder.path());
        for name in ["secret", "camera_1", "camera", "sem.camera"] {
            std::fs::write(folder.path().join(name), [7; 8]).unwrap();
        }
        let check = |key: &str, expected: &str| {
            let message = regions.register("region", key, 0, 8).unwrap_err();
            assert!(message.contains(expected) && message.contains("`allow` under [shared_memory]"), "{message}");
            assert!(regions.read("region", 0, 8).is_err());
        };
        check("/secret", "takes no shared memory");
        regions.allow(["/camera_*", "screen"]);
        check("/secret", "`/secret` is not a key that clients may use");
        check("secret", "`/secret` is not a key");
        check("/camera", "is not a key that clients may use");
        // What is not allowed is not even looked for.
        check("/nobody", "is not a key that clients may use");
        regions.register("region", "/camera_1", 0, 8).unwrap();
        regions.allow(["/*"]);
        let message = regions.register("other", "/sem.camera", 0, 8).unwrap_err();
        assert!(message.contains("is not a key"), "{message}");
        std::fs::hard_link(folder.path().join("secret"), folder.path().join("camera_2")).unwrap();
        regions.allow(["/camera_*"]);
        assert!(regions.register("other", "/camera_2", 0, 8).unwrap_err().contains("another name"));
    }

    #[test]
    fn a_region_that_is_cut_short_is_an_error() {
        let (folder, regions) = folder();
        let path = folder.path().join("a");
        std::fs::write(&path, [0; 64]).unwrap();
        regions.register("region", "/a", 0, 64).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert!(regions.read("region", 0, 64).unwrap_err().contains("cut short"));
        assert!(regions.write("region", 0, 64, &[1; 64]).unwrap_err().contains("cut short"));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 10);
    }
}
