//! Code that was read from files: what a process needed only to start need not stay in its memory.

use rustix::mm::{Advice, madvise};
use std::ffi::c_void;

/// Gives back the memory of all code of files whose name contains `library`. What is run again is read again, mostly
/// from the system's own copy. Says how many bytes of address space that was.
pub fn give_back(library: &str) -> usize {
    // Without the list nothing is given back, and nothing else is different.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut given = 0;
    for (start, length) in maps.lines().filter_map(|line| code_of(line, library)) {
        // SAFETY: the kernel listed this range as a private mapping of a file that can be read and executed but not
        // written. So no page of it differs from the file, and a page that is dropped comes back as it was when it
        // is next touched. A range that was unmapped meanwhile, by whoever closes a library, is refused or, where
        // another file's code took its place, dropped and read again just the same.
        let dropped = unsafe { madvise(start as *mut c_void, length, Advice::LinuxDontNeed) };
        given += if dropped.is_ok() { length } else { 0 };
    }
    given
}

/// Where a line of the list speaks of the code of a library.
fn code_of(line: &str, library: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights, file) = (words.next()?, words.next()?, words.nth(3)?);
    if rights != "r-xp" || !file.starts_with('/') || !file.contains(library) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_library_is_meant() {
        let line = "7f00-9f00 r-xp 00001000 fe:00 12 /usr/lib/libonnxruntime.so.1";
        assert_eq!(code_of(line, "onnxruntime"), Some((0x7f00, 0x2000)));
        assert_eq!(code_of(line, "libc"), None);
        assert_eq!(code_of(&line.replace("r-xp", "rw-p"), "onnxruntime"), None);
        assert_eq!(code_of("7f00-9f00 r-xp 00000000 00:00 0 [vdso]", "vdso"), None);
        assert_eq!(code_of("", "x"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn code_that_was_given_back_still_runs() {
        assert!(give_back("libc") > 0);
        assert_eq!(format!("{:?}", "text".to_string()), "\"text\"");
    }
}
