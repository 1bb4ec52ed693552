//! Bugs on purpose: a check that finds none of them would be worth nothing.
//!
//! Each leaves out, at the border of a machine, something that the machine counts on. The first five are faults that
//! clusters of an earlier version had.

/// Something that is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The scheduler does not take the workers out of a node that ended.
    PhantomWorker,
    /// Gateways keep connections to nodes by their place, whoever is there now, and do not ask.
    WrongNode,
    /// The scheduler does not end when it is told to.
    DeafScheduler,
    /// Gateways have no clock.
    NoDeadline,
    /// Gateways forget which models there are when the scheduler goes.
    ForgottenModels,
    /// Gateways do nothing about requests that come back.
    LostReturns,
    /// The scheduler takes everybody to be there at all times.
    EndlessLease,
    /// Nodes wait for the parts of a batch for ever.
    EndlessAssembly,
    /// Nodes do not write down what happens to workers while there is no scheduler.
    StaleRoster,
    /// The scheduler is not told that a gateway's session is over.
    DeadSession,
    /// Gateways do not say that nobody of a batch is left.
    SilentAbsence,
    /// Gateways go on with the numbers that models had in the last session.
    OldNumbers,
    /// Nodes take batches from whichever scheduler granted them.
    NoFence,
    /// Members join whoever says that it leads.
    AnyLeader,
    /// Gateways refuse requests for models whose workers the next scheduler has not heard of yet.
    HastyGateways,
    /// Every scheduler has the same epoch, so that two number workers and batches alike.
    SameEpoch,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 16] = [
        Bug::PhantomWorker,
        Bug::WrongNode,
        Bug::DeafScheduler,
        Bug::NoDeadline,
        Bug::ForgottenModels,
        Bug::LostReturns,
        Bug::EndlessLease,
        Bug::EndlessAssembly,
        Bug::StaleRoster,
        Bug::DeadSession,
        Bug::SilentAbsence,
        Bug::OldNumbers,
        Bug::NoFence,
        Bug::AnyLeader,
        Bug::HastyGateways,
        Bug::SameEpoch,
    ];
}
