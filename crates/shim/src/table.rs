//! What is known of every intercepted function, and the slot for the real one.

use crate::entries::entry_points;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// The library that exports a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Cuda,
    Nvml,
}

/// Which default stream a variant of a function means by stream 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    /// The one of the whole context; also functions without a stream.
    Legacy,
    /// One for each thread.
    PerThread,
}

/// One intercepted function.
pub(crate) struct Row {
    /// The name that the library exports.
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    /// The name that `cuGetProcAddress` is asked for, from which version on, and with which default stream.
    pub(crate) base: &'static str,
    pub(crate) since: c_int,
    pub(crate) default: DefaultStream,
}

/// The address of one of our functions.
#[derive(Clone, Copy)]
pub(crate) struct Export(pub(crate) *const ());

// SAFETY: it is the address of a function, which all threads may have.
unsafe impl Sync for Export {}

/// What a call reads first. Kernels are near the beginning of the table, in the same cache line as `fast_path`.
#[repr(C, align(64))]
pub(crate) struct Hooks {
    /// The GPU on which kernels are untracked, if there is one.
    pub(crate) fast_path: AtomicU64,
    /// And until when, by the daemon's clock.
    pub(crate) until_ns: AtomicU64,
    /// The real functions, once they are known.
    pub(crate) real: [AtomicPtr<()>; COUNT],
}

macro_rules! rows {
    ($($library:ident {$(
        fn $name:ident = $base:literal $since:literal $default:ident ($($argument:ident: $type:ty),* $(,)?) => $op:path
            $(, unless $passes:path, $where:ident)?;
    )*})*) => {
        /// The number of a function in [`TABLE`] and [`Hooks::real`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, reason = "the driver's names")]
        pub(crate) enum Entry { $($($name,)*)* }

        /// All of them.
        pub(crate) static TABLE: [Row; COUNT] = [$($(Row {
            name: stringify!($name),
            library: Library::$library,
            base: $base,
            since: $since,
            default: DefaultStream::$default,
        },)*)*];

        /// How many there are.
        pub(crate) const COUNT: usize = [$($(Entry::$name,)*)*].len();
    };
}

entry_points!(rows);

/// What a call needs.
pub(crate) static HOOKS: Hooks = Hooks {
    fast_path: AtomicU64::new(0),
    until_ns: AtomicU64::new(0),
    real: [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_name_a_version_and_a_default_stream_mean_one_function() {
        for (index, row) in TABLE.iter().enumerate() {
            let twins = TABLE.iter().filter(|other| {
                (other.library, other.base, other.since, other.default)
                    == (row.library, row.base, row.since, row.default)
            });
            assert!(row.library == Library::Nvml || twins.count() == 1, "{}", row.name);
            let suffixed = row.name.ends_with("_ptsz") || row.name.ends_with("_ptds");
            assert_eq!(suffixed, row.default == DefaultStream::PerThread, "{}", row.name);
            assert!(row.name.starts_with(row.base));
            assert!(index < 256, "hooks are reported in 256 bits");
        }
    }
}
