//! `cuGetProcAddress`: the function for a name, a CUDA version and a kind of default stream.
//!
//! The table has functions under the names they are exported by: a name, perhaps a version (`_v2`), perhaps a mark for the
//! thread's own default stream (`_ptsz`, `_ptds`). Callers ask for the bare name, and get the newest function that the
//! version they name had.

use crate::boundary::{Out, Text};
use crate::code::{Code, Status};
use crate::device::DRIVER_VERSION;
use crate::entry_points::{Entry, TABLE};

const PER_THREAD: u64 = 2;
const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// Names that a later version gave to a function with another name.
const RENAMED: &[(&str, u32, &str)] = &[("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags")];

/// The bare name, and whether the function is for the thread's own default stream.
fn bare(name: &str) -> (&str, bool) {
    let unmarked = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
    let own = unmarked.is_some();
    let name = unmarked.unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((bare, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => (bare, own),
        _ => (name, own),
    }
}

fn find(name: &str, version: i32, own: bool) -> Result<&'static Entry, u32> {
    let version = u32::try_from(version).unwrap_or(0);
    let renamed = RENAMED.iter().find(|(old, since, _)| *old == name && version >= *since);
    let name = renamed.map_or(name, |(_, _, new)| new);
    let named = || TABLE.iter().filter(|entry| bare(entry.name).0 == name);
    if named().next().is_none() {
        return Err(NOT_FOUND);
    }
    // The newest, and of two equally new ones that which is for the stream asked for.
    let suitable = named().filter(|entry| entry.since <= version && (own || !bare(entry.name).1));
    suitable.max_by_key(|entry| (bare(entry.name).1, entry.since)).ok_or(VERSION_NOT_SUFFICIENT)
}

pub(crate) fn cuGetProcAddress(symbol: Text, out: Out<usize>, version: i32, flags: u64) -> Status {
    cuGetProcAddress_v2(symbol, out, version, flags, Out::none())
}

pub(crate) fn cuGetProcAddress_v2(symbol: Text, out: Out<usize>, version: i32, flags: u64, status: Out<u32>) -> Status {
    let symbol = symbol.get()?;
    if out.is_null() || flags > PER_THREAD || version > DRIVER_VERSION + 999 {
        return Err(Code::INVALID_VALUE);
    }
    match find(&symbol, version, flags == PER_THREAD) {
        Ok(entry) => {
            status.offer(FOUND);
            out.set(entry.address as usize)
        }
        Err(why) => {
            status.offer(why);
            out.set(0)?;
            Err(Code::NOT_FOUND)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, version: i32, own: bool) -> Result<&'static str, u32> {
        find(name, version, own).map(|entry| entry.name)
    }

    #[test]
    fn names_versions_and_streams() {
        assert_eq!(check("cuMemAlloc", 12000, false), Ok("cuMemAlloc_v2"));
        assert_eq!(check("cuMemAlloc", 2000, false), Err(VERSION_NOT_SUFFICIENT));
        assert_eq!(check("cuMemAlloc_v2", 12000, false), Err(NOT_FOUND));
        assert_eq!(check("cuCtxCreate", 11000, false), Ok("cuCtxCreate_v2"));
        assert_eq!(check("cuCtxCreate", 12000, false), Ok("cuCtxCreate_v3"));
        assert_eq!(check("cuCtxCreate", 13000, false), Ok("cuCtxCreate_v4"));
        assert_eq!(check("cuCtxSynchronize", 12000, false), Ok("cuCtxSynchronize"));
        assert_eq!(check("cuCtxSynchronize", 13000, false), Ok("cuCtxSynchronize_v2"));
        assert_eq!(check("cuLaunchKernel", 13000, false), Ok("cuLaunchKernel"));
        assert_eq!(check("cuLaunchKernel", 13000, true), Ok("cuLaunchKernel_ptsz"));
        assert_eq!(check("cuMemcpyHtoD", 13000, true), Ok("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(check("cuGetProcAddress", 11030, false), Ok("cuGetProcAddress"));
        assert_eq!(check("cuGetProcAddress", 12000, false), Ok("cuGetProcAddress_v2"));
        assert_eq!(check("cuGraphInstantiate", 11040, false), Ok("cuGraphInstantiate_v2"));
        assert_eq!(check("cuGraphInstantiate", 12000, false), Ok("cuGraphInstantiateWithFlags"));
        assert_eq!(check("cudnnCreate", 13000, false), Err(NOT_FOUND));
    }
}
