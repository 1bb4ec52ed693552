//! The three files that packages are made of: how they are built, stripped, and what they need of the C library.

use super::files::file_name;
use crate::peers;
use crate::program::Program;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// The oldest C library that packages run on: that of 2018, as in RHEL 8, Debian 10 and Ubuntu 18.10.
const GLIBC: Glibc = Glibc(2, 28);
const PACKAGES: [&str; 3] = ["--package=weft", "--package=weft-shim", "--package=fakecuda"];
const FILES: [&str; 3] = ["weft", "libweft.so", "libfakecuda.so"];

/// Which build is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Profile {
    /// Optimized as a whole, against an old C library.
    Dist,
    /// As `cargo build --release` makes it.
    Release,
}

/// A version of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glibc(pub(super) u32, pub(super) u32);

impl std::fmt::Display for Glibc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A build, by the folder that Cargo left it in.
pub(super) struct Built {
    folder: PathBuf,
    /// What it was built against; where that was not said, whatever it needs is right.
    promised: Option<Glibc>,
}

/// Files without their symbols, and the symbols.
pub(super) struct Stripped {
    pub(super) weft: PathBuf,
    pub(super) library: PathBuf,
    pub(super) stand_in: PathBuf,
    pub(super) weft_symbols: PathBuf,
    pub(super) library_symbols: PathBuf,
    /// What they need.
    pub(super) glibc: Glibc,
}

pub(super) fn build(workspace: &Workspace, profile: Profile) -> Result<Built> {
    match profile {
        Profile::Release => release(workspace),
        Profile::Dist => {
            let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
            let wanted = format!("{target}.{GLIBC}");
            let zigbuild = peers::zigbuild(workspace)?;
            let words = ["zigbuild", "--locked", "--profile=dist", "--target", &wanted];
            workspace.cargo(words.into_iter().chain(PACKAGES)).search_first(&zigbuild)?.run()?;
            Ok(Built { folder: workspace.target.join(target).join("dist"), promised: Some(GLIBC) })
        }
    }
}

/// The release build, which the rest of the checks make as well.
pub(super) fn release(workspace: &Workspace) -> Result<Built> {
    setup::build_weft(workspace)?;
    Ok(Built { folder: workspace.target.join("release"), promised: None })
}

impl Built {
    /// Splits off the symbols, and checks that the files need no newer C library than was promised.
    pub(super) fn strip_into(&self, stage: &Path) -> Result<Stripped> {
        let mut needed = Glibc(2, 17);
        for name in FILES {
            let (from, to) = (self.folder.join(name), stage.join(name));
            ensure!(from.is_file(), "find {name}: Cargo did not put it into {}", self.folder.display());
            let symbols = stage.join(format!("{name}.debug"));
            let [from, to, symbols] = [&from, &to, &symbols].map(|path| path.to_string_lossy().into_owned());
            let objcopy =
                |words: &[&str]| Program::new("objcopy").arguments(words.iter().copied()).folder(stage).read();
            objcopy(&["--only-keep-debug", &from, &symbols])?;
            // A debugger finds the symbols by the name in this link.
            let link = format!("--add-gnu-debuglink={symbols}");
            objcopy(&["--strip-all", &link, &from, &to])?;
            let table = Program::new("objdump").arguments(["--dynamic-syms", &to]).read()?;
            let (glibc, symbol) = newest(&table).with_context(|| format!("find the versions that {name} needs"))?;
            if let Some(promised) = self.promised.filter(|promised| glibc > *promised) {
                bail!("run {name} with glibc {promised}: it needs {symbol} of glibc {glibc}");
            }
            needed = needed.max(glibc);
        }
        let path = |name: &str| stage.join(name);
        Ok(Stripped {
            weft: path("weft"),
            library: path("libweft.so"),
            stand_in: path("libfakecuda.so"),
            weft_symbols: path("weft.debug"),
            library_symbols: path("libweft.so.debug"),
            glibc: self.promised.unwrap_or(needed),
        })
    }
}

impl Stripped {
    pub(super) fn size(&self, file: &Path) -> Result<u64> {
        Ok(std::fs::metadata(file).with_context(|| format!("look at {}", file_name(file)))?.len())
    }
}

/// The newest version of the C library in a table of `objdump --dynamic-syms`, and a symbol that needs it.
fn newest(table: &str) -> Result<(Glibc, String)> {
    let symbol = |line: &str| -> Option<(Glibc, String)> {
        // Only what is not defined here is needed from elsewhere.
        let (_, rest) = line.split_once("*UND*")?;
        let mut words = rest.split_whitespace().skip(1);
        let version = words.next()?.trim_matches(['(', ')']).strip_prefix("GLIBC_")?;
        let mut numbers = version.split('.').map(str::parse);
        let glibc = Glibc(numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((glibc, words.next().unwrap_or("a symbol").to_owned()))
    };
    let found = table.lines().filter_map(symbol).max_by_key(|(version, _)| *version);
    found.context("read the table of symbols: none is of the C library")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts() {
        let table = "\
0000000000000000      DF *UND*	0000000000000000 (GLIBC_2.2.5) read
0000000000000000  w   DF *UND*	0000000000000000 (GLIBC_2.34) pidfd_open
0000000000000000      DF *UND*	0000000000000000  GLIBC_2.9   epoll
0000000000000000  w   D  *UND*	0000000000000000  Base        _ITM_
0000000000001000 g    DF .text	0000000000000010  GLIBC_2.99  defined_here
0000000000000000      DF *UND*	0000000000000000 (GCC_3.3) _Unwind_Resume
";
        assert_eq!(newest(table).unwrap(), (Glibc(2, 34), "pidfd_open".to_owned()));
        assert!(newest("no table").is_err());
        assert!(Glibc(2, 9) < Glibc(2, 28));
    }
}
