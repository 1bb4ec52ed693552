//! Questions to the daemon and its answers: one JSON packet each.
//!
//! Names on the wire stay as they were when a Rust name changes (`serde(rename)`): `weft top --json` prints them, and a
//! command of another version reads them.

use config::{Percent, Share, ShareAsked};
use serde::{Deserialize, Serialize};
use std::ops::Not;

/// What a command asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// A tenant comes. It lives as long as the connection, the process that was named, or any process that attached.
    Register(Register),
    /// A tenant's share changes.
    Set(Change),
    /// A tenant's load changes.
    #[serde(rename = "stretch")]
    Boost(Boost),
    /// Another controller throttles best-effort programs, on all GPUs.
    Sharing(String),
    /// Must this tenant, which leaves on request, leave now?
    Wanted(String),
    /// The status of GPUs and tenants.
    Status(StatusAsked),
}

/// A tenant that comes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The tenant's name.
    pub name: String,
    /// Whether the daemon may add a number to a name that is taken.
    #[serde(default)]
    pub rename: bool,
    /// Whether the tenant lives as long as the process that asks, even after that closes the connection.
    #[serde(default)]
    pub process: bool,
    /// What it may have.
    #[serde(default)]
    pub share: ShareAsked,
    /// A hash of the command line. The daemon uses what it learned from earlier runs of the same command.
    #[serde(default)]
    pub command: Option<u64>,
    /// Whether to answer `later` instead of an error when no GPU has room at the moment.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub wait: bool,
    /// Whether it leaves when a program that is not best-effort needs its memory, and comes back later. Its supervisor
    /// must keep asking [`Question::Wanted`]; a tenant without a supervisor stays.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub leaves: bool,
}

/// A change of a tenant's share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The tenant's name.
    pub name: String,
    /// What changes; the rest stays.
    pub share: ShareAsked,
}

/// A share above the request that a tenant's load asks for at present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boost {
    /// The tenant's name.
    pub name: String,
    /// Clamped to its request and its limit.
    pub to: Percent,
}

/// Which part of the status to send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusAsked {
    /// The first GPU; an answer holds as many as fit one packet.
    pub from: usize,
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The tenant is there.
    Registered(Registered),
    /// The share is this.
    Set(Share),
    /// The boost is this.
    #[serde(rename = "stretched")]
    Boosted(Percent),
    /// The controller is this.
    Sharing(String),
    /// The status of GPUs and tenants.
    Status(Status),
    /// No GPU has room at the moment, and why. A client that did not offer to wait gets this only while others make room.
    Later(String),
    /// Whom the tenant must make room for, if anybody.
    Wanted(Option<String>),
    /// The question was rejected, and why. The connection stays open.
    Error(String),
}

/// A tenant that was let in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// Its name: the one it asked for, unless that was taken.
    pub name: String,
    /// UUIDs of the GPUs that its programs see, with commas between them; `None` when they see all.
    pub gpu: Option<String>,
    /// The MPS server that its programs use in spatial mode.
    #[serde(default)]
    pub space: Option<MpsServer>,
}

/// The MPS server of programs in spatial mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MpsServer {
    /// `CUDA_MPS_PIPE_DIRECTORY`.
    pub pipe: String,
    /// `CUDA_MPS_LOG_DIRECTORY`.
    pub log: String,
    /// Whether the program's kernels have the lower MPS priority.
    pub last: bool,
}

/// The status of GPUs and tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: u32,
    /// The driver's version.
    pub driver: Option<String>,
    /// Why there is no GPU, or not all of them.
    pub problem: Option<String>,
    /// Why spatial mode is not available, if it is not.
    #[serde(default)]
    pub no_space: Option<String>,
    /// The controller that throttles best-effort programs.
    #[serde(default)]
    pub sharing: String,
    /// By number.
    pub gpus: Vec<GpuStatus>,
    /// Tenants that use no GPU at the moment.
    pub idle: Vec<TenantStatus>,
    /// Ask again from this GPU on: there are more than fit.
    pub next: Option<usize>,
}

/// The status of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuStatus {
    /// Its number.
    pub index: u32,
    /// Its UUID.
    pub uuid: String,
    /// The maker's name for it.
    pub name: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// The tenants on it.
    pub tenants: Vec<TenantStatus>,
}

/// The status of one tenant on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// The user who started it.
    pub user: u32,
    /// Its processes.
    pub processes: Vec<u32>,
    /// What it may have.
    pub share: Share,
    /// The share that its load asks for at present, in thousandths of the GPU; 0 when unknown.
    #[serde(default, rename = "stretched_permille")]
    pub boost_permille: u32,
    /// Why it is on these GPUs, if the daemon chose them.
    #[serde(default)]
    pub placed: String,
    /// What it gets at present, in thousandths of the GPU.
    pub given_permille: u32,
    /// What it used over the last second, in thousandths of the GPU.
    pub used_permille: u32,
    /// Memory that all its processes use.
    pub memory_bytes: u64,
    /// Allocations that were refused.
    pub refused: u64,
    /// Kernels and graphs a second, over the last second.
    pub launches_per_second: u64,
    /// For how many milliseconds of the last second its launches waited.
    pub waiting_permille: u32,
    /// GPU time used so far.
    pub charged_ns: u64,
    /// Kernels and graphs launched so far.
    pub launches: u64,
    /// Driver entry points that its programs found through the library, one bit each.
    pub hooks: [u64; 4],
    /// Channel groups whose time slices can be set.
    pub channel_groups: u32,
    /// The time slice in microseconds; 0 for the driver's default.
    #[serde(default)]
    pub slice_us: u32,
    /// SMs that its long kernels are confined to, in thousandths.
    #[serde(default)]
    pub space_permille: u32,
    /// Kernels that ran on a part of the SMs so far.
    #[serde(default)]
    pub confined: u64,
    /// Channels that Weft can disable to preempt its work.
    #[serde(default)]
    pub channels: u32,
    /// How often its work was preempted.
    #[serde(default)]
    pub preemptions: u64,
    /// Whether all its launches wait for latency programs.
    #[serde(default)]
    pub held: bool,
    /// How long the busy periods of a latency program take at present, in thousandths of what they may take; 0 while
    /// that is unknown.
    #[serde(default)]
    pub takes_permille: u32,
    /// How it is throttled at the moment, and why.
    #[serde(default)]
    pub note: String,
}
