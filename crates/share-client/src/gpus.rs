//! The GPUs of this machine, as NVML knows them.
//!
//! NVML is looked for when it is needed and never linked: a machine without it has no GPUs, and can be told why.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsString;
use std::fmt;

/// Names a GPU for good, whatever its number is today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads `GPU-6d2c…`, with or without the word in front.
    pub fn read(text: &str) -> Option<Uuid> {
        let digits: Vec<u8> = text.strip_prefix("GPU-").unwrap_or(text).bytes().filter(|byte| *byte != b'-').collect();
        let digits = std::str::from_utf8(&digits).ok().filter(|digits| digits.len() == 32 && digits.is_ascii())?;
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Uuid(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("GPU-")?;
        for (index, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number, in the order of `nvidia-smi`.
    pub index: u32,
    /// Its name for good.
    pub uuid: Uuid,
    /// What its maker calls it.
    pub name: String,
    /// Its memory.
    pub memory_bytes: u64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Gpus {
    /// By number.
    pub gpus: Vec<Gpu>,
    /// The driver's version, where there is one.
    pub driver: Option<String>,
    /// Why there are no GPUs, or not all.
    pub problem: Option<String>,
}

impl Gpus {
    /// Asks NVML. `WEFT_NVML` names another library to ask.
    pub fn find() -> Gpus {
        let library = std::env::var_os("WEFT_NVML").filter(|path| !path.is_empty());
        let library = library.unwrap_or_else(|| OsString::from("libnvidia-ml.so.1"));
        let nvml = match Nvml::builder().lib_path(&library).init() {
            Ok(nvml) => nvml,
            Err(error) => {
                let library = library.display();
                let problem = match error {
                    NvmlError::LibloadingError(_) => format!("NVML ({library}) is not installed, so there is no GPU"),
                    error => format!("NVML ({library}) does not work: {error}"),
                };
                return Gpus { problem: Some(problem), ..Gpus::default() };
            }
        };
        let mut found = Gpus { driver: nvml.sys_driver_version().ok(), ..Gpus::default() };
        let count = nvml.device_count().unwrap_or_else(|error| {
            found.problem = Some(format!("NVML cannot count GPUs: {error}"));
            0
        });
        for index in 0..count {
            match describe(&nvml, index) {
                Ok(gpu) => found.gpus.push(gpu),
                Err(error) => found.problem = Some(format!("NVML cannot describe GPU {index}: {error}")),
            }
        }
        if count == 0 && found.problem.is_none() {
            found.problem = Some("NVML is there and finds no GPU".into());
        }
        found
    }

    /// The GPUs that somebody means by such words with commas between them, or by `all`.
    pub fn listed(&self, text: &str) -> Result<Vec<&Gpu>, String> {
        if text == "all" {
            return Ok(self.gpus.iter().collect());
        }
        let mut found: Vec<&Gpu> = Vec::new();
        for word in text.split(',') {
            let gpu = self.named(word.trim())?;
            if found.iter().any(|other| other.uuid == gpu.uuid) {
                return Err(format!("GPU {} is named twice in `{text}`", gpu.index));
            }
            found.push(gpu);
        }
        Ok(found)
    }

    /// The GPU that somebody means by a number, a UUID or the beginning of one.
    pub fn named(&self, text: &str) -> Result<&Gpu, String> {
        let count = self.gpus.len();
        if let Ok(index) = text.parse::<u32>() {
            let gpu = self.gpus.iter().find(|gpu| gpu.index == index);
            return gpu.ok_or_else(|| format!("there is no GPU {index}; this machine has {count}, numbered from 0"));
        }
        let wanted = text.to_ascii_lowercase();
        let begins = |gpu: &&Gpu| {
            let name = gpu.uuid.to_string().to_ascii_lowercase();
            wanted.len() >= 4 && (name.starts_with(&wanted) || name["gpu-".len()..].starts_with(&wanted))
        };
        let mut named = self.gpus.iter().filter(begins);
        match (named.next(), named.next()) {
            (Some(gpu), None) => Ok(gpu),
            (Some(_), Some(_)) => Err(format!("more than one GPU begins with `{text}`")),
            (None, _) => Err(format!("there is no GPU `{text}`; `weft doctor` lists those of this machine")),
        }
    }
}

fn describe(nvml: &Nvml, index: u32) -> Result<Gpu, String> {
    let device = nvml.device_by_index(index).map_err(|error| error.to_string())?;
    let uuid = device.uuid().map_err(|error| error.to_string())?;
    let uuid = Uuid::read(&uuid).ok_or_else(|| format!("its UUID is `{uuid}`"))?;
    let name = device.name().unwrap_or_else(|_| "GPU".into());
    let memory_bytes = device.memory_info().map_err(|error| error.to_string())?.total;
    Ok(Gpu { index, uuid, name, memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Gpus {
        let gpu = |index: u32| Gpu {
            index,
            uuid: Uuid([index as u8 + 0x10; 16]),
            name: "Test".into(),
            memory_bytes: 1 << 30,
        };
        Gpus { gpus: vec![gpu(0), gpu(1)], ..Gpus::default() }
    }

    #[test]
    fn uuids_read_back_the_same() {
        let text = "GPU-6d2c9a10-0001-0203-0405-060708090a0b";
        assert_eq!(Uuid::read(text).unwrap().to_string(), text);
        for wrong in ["", "GPU-", "GPU-6d2c", "GPU-zzzzzzzz-0001-0203-0405-060708090a0b", "GPU-ééééééééééééééé"]
        {
            assert_eq!(Uuid::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_gpu_has_a_number_and_a_name() {
        let gpus = two();
        assert_eq!(gpus.named("1").unwrap().index, 1);
        assert_eq!(gpus.named("GPU-1111").unwrap().index, 1);
        assert_eq!(gpus.named("1010").unwrap_err(), "there is no GPU 1010; this machine has 2, numbered from 0");
        assert!(gpus.named("gpu-").unwrap_err().contains("more than one"));
        assert!(gpus.named("GPU-77").unwrap_err().contains("`weft doctor`"));
        assert!(gpus.named("").is_err());
        let numbers = |text: &str| Ok::<_, String>(gpus.listed(text)?.iter().map(|gpu| gpu.index).collect::<Vec<_>>());
        assert_eq!(numbers("1, 0"), Ok(vec![1, 0]));
        assert_eq!(numbers("all"), Ok(vec![0, 1]));
        assert_eq!(numbers("1,GPU-1111"), Err("GPU 1 is named twice in `1,GPU-1111`".into()));
        assert_eq!(numbers("0,7"), Err("there is no GPU 7; this machine has 2, numbered from 0".into()));
    }
}
