//! The functions that a shared library offers, read from its file: its dynamic symbols that are defined.
//!
//! Only what is needed of ELF, for 64-bit little-endian files. Any bytes may be read; what makes no sense is no names.

const SECTION_DYNAMIC_SYMBOLS: u32 = 11;

/// Names of functions of the CUDA driver and NVML that the library answers for, in the order of the alphabet.
pub(super) fn driver_functions(file: &[u8]) -> Vec<String> {
    let mut names = names(file).unwrap_or_default();
    names.retain(|name| is_driver_function(name));
    names.sort();
    names.dedup();
    names
}

fn is_driver_function(name: &str) -> bool {
    let capital = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_uppercase());
    name.strip_prefix("cu").is_some_and(capital) || name.strip_prefix("nvml").is_some_and(capital)
}

fn names(file: &[u8]) -> Option<Vec<String>> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (word(file, 0x28)?, half(file, 0x3A)?, half(file, 0x3C)?);
    let section = |index: u64| {
        let at = table.checked_add(index.checked_mul(size)?)?;
        file.get(usize::try_from(at).ok()?..)
    };
    let contents = |header: &[u8]| {
        let (offset, length) = (word(header, 0x18)?, word(header, 0x20)?);
        file.get(usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(length)?).ok()?)
    };
    let symbols = (0..count).filter_map(section).find(|header| quarter(header, 4) == Some(SECTION_DYNAMIC_SYMBOLS))?;
    let strings = contents(section(quarter(symbols, 0x28)?.into())?)?;
    let defined = contents(symbols)?.chunks_exact(24).filter(|symbol| symbol[6..8] != [0, 0]);
    let name = |symbol: &[u8]| {
        let rest = strings.get(quarter(symbol, 0)? as usize..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    };
    Some(defined.filter_map(name).collect())
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn quarter(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_driver() {
        for (name, expected) in [
            ("cuLaunchKernel", true),
            ("nvmlDeviceGetMemoryInfo", true),
            ("cublasCreate", false),
            ("dlsym", false),
            ("cu", false),
        ] {
            assert_eq!(is_driver_function(name), expected, "{name}");
        }
    }

    #[test]
    fn files_that_are_no_libraries_have_no_names() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(names(&program).is_some());
        for length in [0, 1, 5, 6, 63, 64, 1_000, program.len() / 2] {
            let _ = driver_functions(&program[..length]);
        }
        let mut wrong = program[..4_096].to_vec();
        wrong[0x28..0x40].fill(0xFF);
        assert!(driver_functions(&wrong).is_empty());
    }
}
