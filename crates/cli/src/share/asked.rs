//! Shares as they are typed.

use clap::Args;
use config::{Bytes, Percent, ShareAsked};
use policy::Span;
use policy::sharing::Class;

/// What a program may have of a GPU.
#[derive(Debug, Args)]
pub(crate) struct ShareArguments {
    /// Class of the program: `latency` keeps the latency it has alone, `standard` gets the share it requests,
    /// `best-effort` gets what others leave [default: standard]
    #[arg(long, value_parser = config::share::read_class)]
    class: Option<Class>,
    /// Priority within its class, from 0, the highest, to 9 [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// Guaranteed share of GPU time, such as 30% [default: none]
    #[arg(long, value_name = "SHARE")]
    request: Option<Percent>,
    /// Upper limit of GPU time, such as 60% [default: 100%]
    #[arg(long, value_name = "SHARE")]
    limit: Option<Percent>,
    /// Upper limit of GPU memory, such as 20GiB [default: all of it]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Part of the SMs that its kernels may use beside other programs, such as 75% [default: all]
    #[arg(long, value_name = "SHARE")]
    sms: Option<Percent>,
    /// Longest time that a burst of work of a latency program may take, such as 20ms [default: as long as alone]
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
