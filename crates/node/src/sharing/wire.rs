//! What commands ask the daemon, and what it answers: JSON in one packet each.

use rpc::{Percent, Share, ShareAsked};
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
    Stretch(Stretch),
    /// Best-effort programs are let in by another rule, on all GPUs.
    Sharing(String),
    /// Is a tenant that leaves when it is asked to wanted gone?
    Wanted(String),
    /// How is everybody?
    Status(StatusAsked),
}

/// A tenant that comes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// What people will call it.
    pub name: String,
    /// Whether a number may be added to the name where it is taken.
    #[serde(default)]
    pub rename: bool,
    /// Whether it lives as long as the process that asks, also when that closes the connection.
    #[serde(default)]
    pub process: bool,
    /// What it may have.
    #[serde(default)]
    pub share: ShareAsked,
    /// A hash of what is run: what earlier runs of it were like says where the next one is best off.
    #[serde(default)]
    pub command: Option<u64>,
    /// Whether to be told to come again, where there is no room for it at the moment.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub wait: bool,
    /// Whether it leaves when its memory is needed for somebody who is not best-effort, and comes again later. Whoever
    /// looks after it asks again and again whether it is [wanted gone](Question::Wanted); where nobody does, it stays.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub leaves: bool,
}

/// What is to be different.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Whose share.
    pub name: String,
    /// What changes; the rest stays.
    pub share: ShareAsked,
}

/// What a tenant's load asks for at present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// Whose.
    pub name: String,
    /// Between its request and its limit; what is beyond is cut off.
    pub to: Percent,
}

/// What to tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusAsked {
    /// From this GPU on: an answer holds as many as fit one packet.
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
    /// It is stretched to this.
    Stretched(Percent),
    /// The rule is this.
    Sharing(String),
    /// How everybody is.
    Status(Status),
    /// There is no room for it at the moment, and why. Who would not wait is only told so when somebody makes room.
    Later(String),
    /// Who it is to make room for, if it is.
    Wanted(Option<String>),
    /// No, and why. The connection stays.
    Error(String),
}

/// A tenant that was let in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// What it is called, which is what it asked for unless that was taken.
    pub name: String,
    /// UUIDs of the GPUs that its programs are to see, with commas between them; none where they see all.
    pub gpu: Option<String>,
    /// The MPS server that its programs are to use, where they share in space.
    #[serde(default)]
    pub space: Option<Space>,
}

/// Where programs that share in space find each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// `CUDA_MPS_PIPE_DIRECTORY`.
    pub pipe: String,
    /// `CUDA_MPS_LOG_DIRECTORY`.
    pub log: String,
    /// Whether its kernels come after those of others.
    pub last: bool,
}

/// How everybody is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: u32,
    /// The driver's version.
    pub driver: Option<String>,
    /// Why there are no GPUs, or not all.
    pub problem: Option<String>,
    /// Why programs cannot share in space, where they cannot.
    #[serde(default)]
    pub no_space: Option<String>,
    /// By which rule best-effort programs are let in.
    #[serde(default)]
    pub sharing: String,
    /// By number.
    pub gpus: Vec<GpuStatus>,
    /// Tenants that use no GPU at the moment.
    pub idle: Vec<TenantStatus>,
    /// Ask again from this GPU on: there are more than fit.
    pub next: Option<usize>,
}

/// How one GPU is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuStatus {
    /// Its number.
    pub index: u32,
    /// Its name for good.
    pub uuid: String,
    /// What its maker calls it.
    pub name: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Who uses it.
    pub tenants: Vec<TenantStatus>,
}

/// How one tenant is on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// What people call it.
    pub name: String,
    /// Whose it is.
    pub user: u32,
    /// Its processes.
    pub processes: Vec<u32>,
    /// What it may have.
    pub share: Share,
    /// What its load asks for at present, in thousandths of the GPU; 0 where nobody says.
    #[serde(default)]
    pub stretched_permille: u32,
    /// Why it is on the GPUs it is on, where the daemon decided.
    #[serde(default)]
    pub placed: String,
    /// What it is given at present, in thousandths of the GPU.
    pub given_permille: u32,
    /// What it used over the last second, in thousandths of the GPU.
    pub used_permille: u32,
    /// Memory that its processes use together.
    pub memory_bytes: u64,
    /// Allocations that were refused.
    pub refused: u64,
    /// Kernels and graphs a second, over the last second.
    pub launches_per_second: u64,
    /// Milliseconds of each of the last seconds that launches were held.
    pub waiting_permille: u32,
    /// GPU time used so far.
    pub charged_ns: u64,
    /// Kernels and graphs launched so far.
    pub launches: u64,
    /// Entry points of the driver that its programs found through the library, one bit each.
    pub hooks: [u64; 4],
    /// Channel groups whose time slices can be set.
    pub channel_groups: u32,
    /// The time slice that was set, in microseconds; 0 for the driver's own.
    #[serde(default)]
    pub slice_us: u32,
    /// SMs that its long kernels are confined to, in thousandths.
    #[serde(default)]
    pub space_permille: u32,
    /// Kernels that were confined so far.
    #[serde(default)]
    pub confined: u64,
    /// Channels that can be disabled, to take its work off the GPU.
    #[serde(default)]
    pub channels: u32,
    /// Times that its work was taken off the GPU for somebody's burst.
    #[serde(default)]
    pub preemptions: u64,
    /// Whether its launches wait for latency programs, all of them.
    #[serde(default)]
    pub held: bool,
    /// How long the bursts of a latency program take at present, in thousandths of what they may; 0 while that is not
    /// known.
    #[serde(default)]
    pub takes_permille: u32,
    /// What is done about it at the moment, and why.
    #[serde(default)]
    pub note: String,
}
