//! A sub-cluster's dispatcher behind packed messages: what a thread drives.
//!
//! Events come in packets and decisions go out in packets, so that a thread is handed bytes and not requests: what
//! crosses from one core to another is a buffer, once per packet. All that is in a packet happened by the moment at which
//! it is taken in; batches that are over count before requests that came, and requests that came together are looked at
//! together (see [`Dispatcher::on_arrivals`]).
//!
//! A shard shares nothing with another. Its decisions follow from its packets and their times alone, on whichever thread.
//!
//! Integers are little-endian. A packet is a row of records, each with a byte that says what it is:
//!
//! | record | byte | then |
//! |---|---:|---|
//! | a request came | 1 | id (8), model (4), deadline (8) |
//! | a batch is over | 2 | GPU (4), batch (8) |
//! | run a batch | 3 | GPU (4), model (4), batch (8), finish (8), count (4), ids (8 each) |
//! | refuse a request | 4 | id (8), model (4), reason (1) |
//! | stop a GPU | 5 | GPU (4) |

use crate::{Action, Actions, Dispatcher, Event, GpuId, ModelId, Reason, Request, RequestId, Time};

const ARRIVED: u8 = 1;
const DONE: u8 = 2;
const RUN: u8 = 3;
const REJECT: u8 = 4;
const PREEMPT: u8 = 5;

/// Adds a request that came to a packet.
#[inline]
pub fn pack_arrival(packet: &mut Vec<u8>, id: RequestId, model: ModelId, deadline: Time) {
    let mut record = [ARRIVED; 21];
    record[1..9].copy_from_slice(&id.0.to_le_bytes());
    record[9..13].copy_from_slice(&model.0.to_le_bytes());
    record[13..].copy_from_slice(&deadline.nanos().to_le_bytes());
    packet.extend_from_slice(&record);
}

/// Adds a batch that is over to a packet.
#[inline]
pub fn pack_done(packet: &mut Vec<u8>, gpu: GpuId, batch: u64) {
    let mut record = [DONE; 13];
    record[1..5].copy_from_slice(&gpu.0.to_le_bytes());
    record[5..].copy_from_slice(&batch.to_le_bytes());
    packet.extend_from_slice(&record);
}

/// The bytes are no packet of events, or name what the shard does not have. Nothing of such a packet was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Takes integers off the front of a packet.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    #[inline]
    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    #[inline]
    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// A dispatcher that is told and tells in packets.
pub struct Shard {
    dispatcher: Dispatcher,
    arrivals: Vec<Request>,
    done: Vec<(GpuId, u64)>,
    actions: Actions,
}

impl Shard {
    /// Puts packets around a dispatcher.
    pub fn new(dispatcher: Dispatcher) -> Shard {
        Shard { dispatcher, arrivals: Vec::new(), done: Vec::new(), actions: Actions::default() }
    }

    /// The dispatcher.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// Takes in a packet; what follows from it is appended to `out`.
    pub fn on_packet(&mut self, now: Time, packet: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        self.arrivals.clear();
        self.done.clear();
        self.read(now, packet).ok_or(Malformed)?;
        for (gpu, batch) in self.done.drain(..) {
            self.dispatcher.on_event(now, Event::BatchDone { gpu, batch }, &mut self.actions);
        }
        if !self.arrivals.is_empty() {
            self.dispatcher.on_arrivals(now, &self.arrivals, &mut self.actions);
        }
        pack_actions(&mut self.actions, out);
        Ok(())
    }

    fn read(&mut self, now: Time, packet: &[u8]) -> Option<()> {
        let cluster = self.dispatcher.cluster();
        let (models, gpus) = (cluster.models.len(), cluster.gpus.len());
        let mut bytes = Bytes(packet);
        while let Some(record) = bytes.byte() {
            match record {
                ARRIVED => {
                    let (id, model, deadline) = (RequestId(bytes.long()?), ModelId(bytes.word()?), bytes.long()?);
                    let deadline = Time::from_nanos(deadline);
                    (model.index() < models).then_some(())?;
                    self.arrivals.push(Request { id, model, arrival: now, deadline });
                }
                DONE => {
                    let (gpu, batch) = (GpuId(bytes.word()?), bytes.long()?);
                    (gpu.index() < gpus).then_some(())?;
                    self.done.push((gpu, batch));
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Takes in an event that does not come in packets; what follows from it is appended to `out`.
    pub fn on_event(&mut self, now: Time, event: Event, out: &mut Vec<u8>) {
        self.dispatcher.on_event(now, event, &mut self.actions);
        pack_actions(&mut self.actions, out);
    }

    /// Does what is due by now; what follows from it is appended to `out`.
    pub fn on_timer(&mut self, now: Time, out: &mut Vec<u8>) {
        self.dispatcher.on_timer(now, &mut self.actions);
        pack_actions(&mut self.actions, out);
    }

    /// When [`Shard::on_timer`] is next due.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        self.dispatcher.next_timer()
    }
}

fn pack_actions(actions: &mut Actions, out: &mut Vec<u8>) {
    for action in &actions.list {
        match action {
            Action::Run { gpu, model, batch, requests, finish } => {
                let ids = &actions.requests[requests.clone()];
                let mut record = [RUN; 29];
                record[1..5].copy_from_slice(&gpu.0.to_le_bytes());
                record[5..9].copy_from_slice(&model.0.to_le_bytes());
                record[9..17].copy_from_slice(&batch.to_le_bytes());
                record[17..25].copy_from_slice(&finish.nanos().to_le_bytes());
                record[25..].copy_from_slice(&(ids.len() as u32).to_le_bytes());
                out.extend_from_slice(&record);
                for id in ids {
                    out.extend_from_slice(&id.0.to_le_bytes());
                }
            }
            Action::Reject { request, model, reason } => {
                let mut record = [REJECT; 14];
                record[1..9].copy_from_slice(&request.0.to_le_bytes());
                record[9..13].copy_from_slice(&model.0.to_le_bytes());
                record[13] = *reason as u8;
                out.extend_from_slice(&record);
            }
            Action::Preempt { gpu } => {
                out.push(PREEMPT);
                out.extend_from_slice(&gpu.0.to_le_bytes());
            }
        }
    }
    actions.clear();
}

/// A decision in a packet.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'a> {
    /// Run these requests together.
    Run {
        /// Where.
        gpu: GpuId,
        /// What they ask for.
        model: ModelId,
        /// Serial number, to be named when it is over.
        batch: u64,
        /// When it is expected to be over.
        finish: Time,
        /// Who is in it.
        requests: Ids<'a>,
    },
    /// Answer this request with a refusal.
    Reject {
        /// Which one.
        request: RequestId,
        /// What it asked for.
        model: ModelId,
        /// Why.
        reason: Reason,
    },
    /// Stop what this GPU runs.
    Preempt {
        /// Where.
        gpu: GpuId,
    },
}

/// The requests of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Ids<'a>(&'a [u8]);

impl Ids<'_> {
    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.0.len() / 8
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.0.as_chunks::<8>().0.iter().map(|id| RequestId(u64::from_le_bytes(*id)))
    }
}

/// The decisions in a packet, in order, up to the first that is none.
pub fn decisions(packet: &[u8]) -> impl Iterator<Item = Decision<'_>> {
    let mut bytes = Bytes(packet);
    std::iter::from_fn(move || decision(&mut bytes))
}

fn decision<'a>(bytes: &mut Bytes<'a>) -> Option<Decision<'a>> {
    Some(match bytes.byte()? {
        RUN => {
            let (gpu, model) = (GpuId(bytes.word()?), ModelId(bytes.word()?));
            let (batch, finish) = (bytes.long()?, Time::from_nanos(bytes.long()?));
            let count = bytes.word()? as usize;
            let (ids, rest) = bytes.0.split_at_checked(count.checked_mul(8)?)?;
            bytes.0 = rest;
            Decision::Run { gpu, model, batch, finish, requests: Ids(ids) }
        }
        REJECT => {
            let (request, model) = (RequestId(bytes.long()?), ModelId(bytes.word()?));
            let reason = bytes.byte()?;
            let reason = Reason::ALL.into_iter().find(|one| *one as u8 == reason)?;
            Decision::Reject { request, model, reason }
        }
        PREEMPT => Decision::Preempt { gpu: GpuId(bytes.word()?) },
        _ => return None,
    })
}
