//! Shares as they are typed.

use clap::Args;
use policy::Span;
use policy::sharing::Class;
use rpc::{Bytes, Percent, ShareAsked};

/// What a program may have of a GPU.
#[derive(Debug, Args)]
pub(crate) struct ShareArguments {
    /// What it is to others: `latency` keeps the latency it has alone, `standard` shares what is guaranteed to it,
    /// `best-effort` gets the rest
    #[arg(long, value_parser = rpc::share::read_class)]
    class: Option<Class>,
    /// How important it is among its class, from 0, the most, to 9
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// The part of the GPU's time that it has whenever it wants it, such as 30%
    #[arg(long, value_name = "SHARE")]
    request: Option<Percent>,
    /// The part of the GPU's time that it never passes, such as 60%
    #[arg(long, value_name = "SHARE")]
    limit: Option<Percent>,
    /// The GPU memory that it may use, such as 20GiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// The part of the SMs that its kernels may use while others run beside it, such as 75%
    #[arg(long, value_name = "SHARE")]
    sms: Option<Percent>,
    /// How long a burst of its work may take, such as 20ms, if it is a latency program [default: as long as alone]
    #[arg(long, value_name = "TIME")]
    slo: Option<Span>,
}

impl ShareArguments {
    /// The share, on the GPU that it is on.
    pub(crate) fn asked(&self) -> ShareAsked {
        let ShareArguments { class, priority, request, limit, memory, sms, slo } = *self;
        ShareAsked { class, priority, request, limit, memory, sms, slo, ..ShareAsked::default() }
    }
}
