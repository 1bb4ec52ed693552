//! Variables of a model's workers: which a deployment may set, and which workers inherit. The one place where names
//! are judged.

use std::collections::BTreeMap;

/// What stands for a variable's value wherever a deployment is shown.
pub const HIDDEN: &str = "(not shown)";

/// The most variables of a deployment, and the longest name and value.
const VARIABLES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 32 << 10;

/// Variables that make a program run code, or trust somebody, that its command line does not name. A `*` stands for any
/// letters. No list of these is complete: whoever may deploy may run code. Each with what it would do.
const DANGEROUS: [(&str, &str); 42] = [
    ("LD_*", "the dynamic linker loads code from where it says"),
    ("GLIBC_TUNABLES", "it changes how the C library checks itself"),
    ("GCONV_PATH", "the C library loads code from where it says"),
    ("LOCPATH", "the C library reads locale files from where it says"),
    ("NLSPATH", "the C library reads message files from where it says"),
    ("RES_OPTIONS", "it changes how names of machines are looked up"),
    ("HOSTALIASES", "it changes how names of machines are looked up"),
    ("PATH", "it decides which programs are started"),
    ("IFS", "shells take commands apart by it"),
    ("BASH_ENV", "every shell script runs the file that it names"),
    ("ENV", "every shell runs the file that it names"),
    ("BASH_FUNC_*", "it replaces commands in shell scripts"),
    ("SHELLOPTS", "it changes how shell scripts run"),
    ("BASHOPTS", "it changes how shell scripts run"),
    ("PS4", "shells run the commands in it"),
    ("PYTHON*", "Python loads code from where it says"),
    ("_PYTHON*", "Python loads code that it names"),
    ("HOME", "interpreters and tools run what is in the folder that it names"),
    ("XDG_*", "programs read settings from where it says"),
    ("CC", "libraries that compile kernels run the program that it names"),
    ("CXX", "libraries that compile kernels run the program that it names"),
    ("TORCH_EXTENSIONS_DIR", "PyTorch loads code from where it says"),
    ("TRITON_*", "Triton loads code from where it says"),
    ("NUMBA_CACHE_DIR", "Numba loads code from where it says"),
    ("HF_MODULES_CACHE", "transformers load code from where it says"),
    ("OMP_TOOL_LIBRARIES", "OpenMP loads code from where it says"),
    ("NCCL_*PLUGIN", "NCCL loads code that it names"),
    ("SSL_CERT_*", "it decides whose certificates are trusted"),
    ("REQUESTS_CA_BUNDLE", "it decides whose certificates are trusted"),
    ("PERL*", "Perl loads code from where it says"),
    ("RUBY*", "Ruby loads code from where it says"),
    ("NODE_OPTIONS", "Node.js loads code that it names"),
    ("JAVA_TOOL_OPTIONS", "Java loads code that it names"),
    ("JDK_JAVA_OPTIONS", "Java loads code that it names"),
    ("_JAVA_OPTIONS", "Java loads code that it names"),
    ("OPENSSL_*", "OpenSSL loads code that it names"),
    ("SSLKEYLOGFILE", "keys of encrypted connections are written to the file that it names"),
    ("CUDA_INJECTION64_PATH", "the CUDA driver loads code from where it says"),
    ("NVTX_INJECTION*", "NVIDIA's libraries load code from where it says"),
    ("CUDA_MPS_*", "it decides whose GPU processes the worker is one of, and Weft does that"),
    ("GIT_*", "git runs programs that it names"),
    ("WEFT_*", "Weft tells its workers by it what they are and may have"),
];

/// Variables that a deployment may set although [`DANGEROUS`] covers them.
const HARMLESS: [&str; 1] = ["WEFT_SHARE_WEIGHTS"];

/// Variables that workers inherit from the node although [`DANGEROUS`] covers them: whoever starts the node means them
/// for its workers as well. Those of Weft say where the sharing daemon and its parts are.
const INHERITED: [&str; 23] = [
    "PATH",
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "CC",
    "CXX",
    "TRITON_CACHE_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "WEFT_SOCKET",
    "WEFT_LIBRARY",
    "WEFT_NVML",
    "WEFT_DISABLE",
    "WEFT_QUIET",
    "WEFT_LOG",
    "WEFT_LOG_FORMAT",
];

/// Whether a deployment may set these variables; if not, why.
pub fn check(env: &BTreeMap<String, String>) -> Result<(), String> {
    if env.len() > VARIABLES_MAX {
        return Err(format!("`env` has {} variables; {VARIABLES_MAX} are allowed", env.len()));
    }
    for (name, value) in env {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_name) {
            return Err(format!("`env` has a variable `{}`, which is not a name", name.escape_debug()));
        }
        if value.contains('\0') || value.len() > VALUE_BYTES_MAX {
            return Err(format!(
                "`env` has `{name}` with a value of over {VALUE_BYTES_MAX} bytes, or with a null byte"
            ));
        }
        if let Some(why) = danger(name).filter(|_| !HARMLESS.contains(&name.as_str())) {
            return Err(format!("`env` may not set `{name}`: {why}; set it for `weft up` or `weft node` if you must"));
        }
    }
    Ok(())
}

/// Whether workers inherit a variable of the node's own environment.
pub fn is_inherited(name: &str) -> bool {
    danger(name).is_none() || INHERITED.contains(&name)
}

/// What a variable would do, if that is bad.
fn danger(name: &str) -> Option<&'static str> {
    let covers = |pattern: &str| match pattern.split_once('*') {
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
        None => name == pattern,
    };
    DANGEROUS.iter().find(|(pattern, _)| covers(pattern)).map(|(_, why)| *why)
}

/// Compares a secret with what somebody brought. The time it takes does not tell where they differ.
pub fn is_same_secret(secret: &str, brought: &str) -> bool {
    let pairs = secret.bytes().zip(brought.bytes());
    let differ = pairs.fold(0, |differ, (one, other)| std::hint::black_box(differ | (one ^ other)));
    secret.len() == brought.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &str) -> Result<(), String> {
        check(&BTreeMap::from([(name.to_string(), "x".to_string())]))
    }

    #[test]
    fn variables_that_run_code_are_refused_and_others_are_not() {
        for (name, _) in DANGEROUS {
            let name = name.replace('*', "X");
            let message = judged(&name).unwrap_err();
            assert!(message.contains(&format!("may not set `{name}`")), "{message}");
        }
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONWARNINGS", "WEFT_SOCKET"] {
            assert!(judged(name).is_err(), "{name}");
        }
        let fine =
            ["FACTOR", "HF_HOME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "WEFT_SHARE_WEIGHTS", "PATHS", "a.b-c"];
        for name in fine {
            assert_eq!(judged(name), Ok(()), "{name}");
        }
        for name in ["", "A=B", "A\0", "A B", "Ä", &"A".repeat(300)] {
            assert!(judged(name).unwrap_err().contains("is not a name"), "{name}");
        }
        let many = (0..300).map(|index| (format!("V{index}"), String::new())).collect();
        assert!(check(&many).unwrap_err().contains("300 variables"));
        assert!(check(&BTreeMap::from([("A".into(), "\0".into())])).is_err());
    }

    #[test]
    fn workers_inherit_neither_secrets_of_weft_nor_what_changes_interpreters() {
        for name in ["WEFT_TOKEN", "WEFT_ADMIN_KEY", "PYTHONPATH", "PYTHONHOME", "BASH_ENV", "LD_AUDIT", "NODE_OPTIONS"]
        {
            assert!(!is_inherited(name), "{name}");
        }
        for name in ["HOME", "PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "WEFT_SOCKET"] {
            assert!(is_inherited(name), "{name}");
        }
    }

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(is_same_secret("secret", "secret"));
        for other in ["", "secre", "secrets", "Secret", "secreT"] {
            assert!(!is_same_secret("secret", other), "{other}");
        }
    }
}
