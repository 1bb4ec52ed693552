//! Where `libweft.so` is: the library that programs under a share are started with. And other libraries beside it.

use crate::output::Misuse;
use std::path::{Path, PathBuf};

const NAME: &str = "libweft.so";

/// The library: `WEFT_LIBRARY`, or beside this program, or in the folder of libraries next to it.
pub(crate) fn find() -> Result<PathBuf, Misuse> {
    if let Some(named) = std::env::var_os("WEFT_LIBRARY").filter(|named| !named.is_empty()) {
        let path = std::path::absolute(&named).unwrap_or_else(|_| named.into());
        return match path.is_file() {
            true => Ok(path),
            false => Err(Misuse(format!("find {NAME}: WEFT_LIBRARY names {}, which is not there", path.display()))),
        };
    }
    find_beside(NAME)
}

/// A library that was installed with this program.
pub(crate) fn find_beside(name: &str) -> Result<PathBuf, Misuse> {
    let program = std::env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(name), folder.join("../lib").join(name), folder.join("../lib/weft").join(name)];
    let found = places.iter().find(|place| place.is_file()).and_then(|place| std::fs::canonicalize(place).ok());
    found.ok_or_else(|| {
        Misuse(format!("find {name}: it is not beside {}; set WEFT_LIBRARY to where libweft.so is", program.display()))
    })
}
