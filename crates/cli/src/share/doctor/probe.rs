//! A small program under a share, and what it saw of the driver.
//!
//! It is written in Python, whose `ctypes` finds functions as programs do: loading the driver is not for this program,
//! which has no unsafe code.

use super::super::library;
use super::exports::driver_functions;
use super::finding::{Finding, Health};
use serde::Deserialize;
use share_client::{Client, PROTOCOL_VERSION, Status};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("probe.py");
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    error: Option<String>,
    by_name: BTreeMap<String, String>,
    by_resolver: BTreeMap<String, String>,
    code: i32,
}

pub(super) fn look() -> Vec<Finding> {
    match run() {
        Ok(findings) => findings,
        Err((found, advice)) => vec![Finding::other("functions", Health::Skipped, found, advice)],
    }
}

/// What could not be done, and what to do about it.
type Trouble = (String, &'static str);

fn run() -> Result<Vec<Finding>, Trouble> {
    let library = library::find().map_err(|problem| (problem.0, "set WEFT_LIBRARY"))?;
    let file = std::fs::read(&library).map_err(|error| (format!("{}: {error}", library.display()), "read it"))?;
    let names = driver_functions(&file);
    if names.is_empty() {
        let found = format!("{} answers for no function of the driver", library.display());
        return Ok(vec![Finding::other(
            "library",
            Health::Broken,
            found,
            "WEFT_LIBRARY names another file than Weft's",
        )]);
    }
    let name = format!("weft-doctor-{}", std::process::id());
    let program = std::env::current_exe().map_err(|error| (error.to_string(), "try again"))?;
    let mut command = Command::new(program);
    command.args(["run", "--name", &name, "--", "python3", "-c", PROGRAM]).arg(names.join(",")).arg(&library);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| (format!("no program could be run: {error}"), "try again"))?;
    let line = first_line(&mut child);
    let status = line.is_some().then(|| seen(&name)).flatten();
    // It waits for the end of its input.
    drop(child.stdin.take());
    if line.is_none() {
        let _ = child.kill();
    }
    let output = child.wait_with_output().map_err(|error| (error.to_string(), "try again"))?;
    let Some(said) = line.and_then(|line| serde_json::from_str::<Said>(&line).ok()) else {
        let talk = String::from_utf8_lossy(&output.stderr);
        let last = talk.lines().last().unwrap_or("it said nothing").to_owned();
        return Err((format!("the probe did not work: {last}"), "it needs python3; programs can be run without it"));
    };
    Ok(judge(&said, names.len(), status.as_ref(), &name))
}

fn first_line(child: &mut Child) -> Option<String> {
    let mut reader = BufReader::new(child.stdout.take()?);
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = reader.read_line(&mut line).ok().filter(|length| *length > 0);
        drop(send.send(read.map(|_| line)));
    });
    receive.recv_timeout(PATIENCE).ok().flatten()
}

/// How the daemon sees the probe, once it has come and said what it found.
fn seen(name: &str) -> Option<Status> {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        let status = Client::find().ok().flatten().and_then(|client| client.status().ok())?;
        let came =
            status.gpus.iter().flat_map(|gpu| &gpu.tenants).any(|tenant| tenant.name == name && tenant.hooks != [0; 4]);
        if came || Instant::now() > until {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn judge(said: &Said, count: usize, status: Option<&Status>, name: &str) -> Vec<Finding> {
    if let Some(error) = &said.error {
        let advice = "install NVIDIA's driver, or set LD_LIBRARY_PATH to where libcuda.so.1 is";
        return vec![Finding::other("functions", Health::Broken, format!("libcuda.so.1: {error}"), advice)];
    }
    let of = |map: &BTreeMap<String, String>, who: &str| -> Vec<String> {
        map.iter().filter(|(_, answered)| *answered == who).map(|(name, _)| name.clone()).collect()
    };
    let mut findings = Vec::new();
    for (what, map) in [("dlsym", &said.by_name), ("resolver", &said.by_resolver)] {
        let (hooked, missed, absent) = (of(map, "weft"), of(map, "driver"), of(map, "absent"));
        let absent = if absent.is_empty() {
            String::new()
        } else {
            format!("; this driver does not have {}", absent.join(", "))
        };
        let found = format!("{} of {} functions answered by Weft{absent}", hooked.len(), map.len());
        findings.push(match missed.is_empty() {
            true => Finding::good(what, found),
            false => {
                let advice = "shares do not hold for calls of these; report it with the driver's version";
                Finding::other(what, Health::Broken, format!("{found}; not {}", missed.join(", ")), advice)
            }
        });
    }
    if said.code != 0 {
        let advice = "run the program without Weft: if it fails as well, see `nvidia-smi`";
        let found = format!("no context could be made: CUDA error {}", said.code);
        findings.push(Finding::other("context", Health::Broken, found, advice));
        return findings;
    }
    let tenants = status.into_iter().flat_map(|status| &status.gpus).flat_map(|gpu| &gpu.tenants);
    findings.extend(match tenants.into_iter().find(|tenant| tenant.name == name) {
        Some(tenant) => {
            let resolved: u32 = tenant.hooks.iter().map(|word| word.count_ones()).sum();
            let found =
                format!("attached to the daemon, version {}; {resolved} of {count} functions seen", PROTOCOL_VERSION);
            let slices = match tenant.channel_groups {
                0 => {
                    let advice = "shares hold by the gate alone; longer kernels of others are not interrupted";
                    Finding::other("slices", Health::Limited, "no channel group was seen", advice)
                }
                groups => Finding::good("slices", format!("can be set for {groups} channel groups of a process")),
            };
            let preemption = match tenant.channels {
                0 => {
                    let advice = "kernels of best-effort programs that run go on beside somebody's burst, in slices";
                    Finding::other("preemption", Health::Limited, "no channel was seen", advice)
                }
                channels => {
                    Finding::good("preemption", format!("what runs in {channels} channels can be taken off the GPU"))
                }
            };
            vec![Finding::good("probe", found), slices, preemption]
        }
        None => {
            let advice =
                "library and daemon may be of different versions: end the daemon, and install both from one release";
            vec![Finding::other("probe", Health::Broken, "the program did not attach to the daemon", advice)]
        }
    });
    findings
}
