//! Batches: put together from the parts that gateways send, and taken apart into what a worker can run at once.
//!
//! A request is answered once: whoever takes payloads out of here answers them, and what is given up is answered here.
//! No worker, process or clock is known here; the time is an argument.

use rpc::{DataType, Failure, Part, Payload, Tensor, tensor};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many batches that were given up are remembered, so that their late parts are not waited for again.
const GIVEN_UP_MAX: usize = 1024;

/// A batch with all of its parts.
pub(crate) struct Batch {
    pub(crate) number: u64,
    pub(crate) payloads: Vec<Payload>,
}

/// Answers requests with a failure.
pub(crate) fn fail(payloads: impl IntoIterator<Item = Payload>, failure: &Failure) {
    for payload in payloads {
        (payload.answer)(Err(failure.clone()));
    }
}

/// Parts of batches that are not complete.
pub(crate) struct Assembly {
    patience: Duration,
    waiting: BTreeMap<u64, Waiting>,
    given_up: VecDeque<(u64, Failure)>,
}

struct Waiting {
    since: Instant,
    size: usize,
    payloads: Vec<Payload>,
}

impl Assembly {
    /// Nothing yet. A batch waits for its last part no longer than `patience` after its first.
    pub(crate) fn new(patience: Duration) -> Assembly {
        Assembly { patience, waiting: BTreeMap::new(), given_up: VecDeque::new() }
    }

    /// Takes a part; gives the batch that it completes.
    pub(crate) fn add(&mut self, now: Instant, part: Part) -> Option<Batch> {
        if part.payloads.len() >= part.size {
            return Some(Batch { number: part.batch, payloads: part.payloads });
        }
        if let Some((_, failure)) = self.given_up.iter().find(|(number, _)| *number == part.batch) {
            fail(part.payloads, failure);
            return None;
        }
        let waiting = self.waiting.entry(part.batch).or_insert_with(|| Waiting {
            since: now,
            size: part.size,
            payloads: Vec::with_capacity(part.size),
        });
        waiting.payloads.extend(part.payloads);
        if waiting.payloads.len() < waiting.size {
            return None;
        }
        let Waiting { payloads, .. } = self.waiting.remove(&part.batch)?;
        Some(Batch { number: part.batch, payloads })
    }

    /// Whether no batch waits for parts.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When [`Assembly::expire`] is next due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.since + self.patience).min()
    }

    /// Fails batches whose parts did not come in time; gives their numbers and how many requests they were to hold.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(u64, usize)> {
        let patience = self.patience;
        let overdue = self.waiting.extract_if(.., |_, waiting| waiting.since + patience <= now);
        let mut expired = Vec::new();
        for (number, waiting) in overdue {
            let (came, size) = (waiting.payloads.len(), waiting.size);
            let message = format!("only {came} of the batch's {size} requests reached the worker within {patience:?}");
            let failure = Failure::Model(message);
            fail(waiting.payloads, &failure);
            remember(&mut self.given_up, number, failure);
            expired.push((number, size));
        }
        expired
    }

    /// Fails every batch that waits, because its worker died.
    pub(crate) fn abandon(&mut self) {
        for (number, waiting) in std::mem::take(&mut self.waiting) {
            fail(waiting.payloads, &Failure::WorkerDied);
            remember(&mut self.given_up, number, Failure::WorkerDied);
        }
    }
}

fn remember(given_up: &mut VecDeque<(u64, Failure)>, number: u64, failure: Failure) {
    if given_up.len() == GIVEN_UP_MAX {
        given_up.pop_front();
    }
    given_up.push_back((number, failure));
}

/// Requests of a batch that can lie one after the other in memory: same inputs, same types, same dimensions but the
/// first.
pub(crate) struct Group {
    /// Their places in the batch.
    pub(crate) members: Vec<usize>,
    /// For each, the first dimension of its tensors.
    pub(crate) rows: Vec<usize>,
    /// For each input, the places of its tensor in each member's list.
    columns: Vec<Vec<usize>>,
}

/// One input of a group: what the model calls it, its type and shape, and the pieces that make it up.
pub(crate) struct Column<'a> {
    pub(crate) name: &'a str,
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<usize>,
    pub(crate) pieces: Vec<&'a [u8]>,
}

impl Group {
    /// The inputs, ready to be written one after the other.
    pub(crate) fn columns<'a>(&self, requests: &'a [Arc<[Tensor]>], batched: bool) -> Vec<Column<'a>> {
        let column = |places: &Vec<usize>| {
            let tensor_of = |(member, place): (&usize, &usize)| &requests[*member][*place];
            let tensors = self.members.iter().zip(places).map(tensor_of);
            let first = tensor_of((&self.members[0], &places[0]));
            let mut shape = first.shape.clone();
            if batched {
                shape[0] = self.rows.iter().sum();
            }
            let pieces = tensors.map(|tensor| &tensor.data[..]).collect();
            Column { name: &first.name, datatype: first.datatype, shape, pieces }
        };
        self.columns.iter().map(column).collect()
    }
}

/// Sorts the requests of a batch, each given by its inputs, into groups, in the order in which they came. Requests that
/// make no sense are given with the reason. Without a batch dimension each request is a group.
pub(crate) fn group(requests: &[Arc<[Tensor]>], batched: bool) -> (Vec<Group>, Vec<(usize, String)>) {
    let mut groups: Vec<Group> = Vec::with_capacity(1);
    let mut refused = Vec::new();
    for (index, inputs) in requests.iter().enumerate() {
        let rows = match check(inputs, batched) {
            Ok(rows) => rows,
            Err(reason) => {
                refused.push((index, reason));
                continue;
            }
        };
        // Clients may list inputs in any order.
        let mut order: Vec<usize> = (0..inputs.len()).collect();
        order.sort_unstable_by(|one, other| inputs[*one].name.cmp(&inputs[*other].name));
        let fits = |group: &&mut Group| {
            batched && {
                let first = &requests[group.members[0]];
                first.len() == inputs.len()
                    && group.columns.iter().zip(&order).all(|(column, place)| {
                        let (one, other) = (&first[column[0]], &inputs[*place]);
                        one.name == other.name && one.datatype == other.datatype && one.shape[1..] == other.shape[1..]
                    })
            }
        };
        match groups.iter_mut().find(fits) {
            Some(group) => {
                group.members.push(index);
                group.rows.push(rows);
                group.columns.iter_mut().zip(order).for_each(|(column, place)| column.push(place));
            }
            None => groups.push(Group {
                members: vec![index],
                rows: vec![rows],
                columns: order.into_iter().map(|place| vec![place]).collect(),
            }),
        }
    }
    (groups, refused)
}

/// How many rows a request has, or why it cannot be run.
fn check(inputs: &[Tensor], batched: bool) -> Result<usize, String> {
    let mut rows = None;
    for input in inputs {
        let Tensor { name, datatype, shape, data } = input;
        let expected = datatype.size().map(|size| tensor::elements(shape).and_then(|count| count.checked_mul(size)));
        if expected.is_some_and(|expected| expected != Some(data.len())) {
            return Err(format!("input `{name}` of shape {shape:?} cannot have {} bytes", data.len()));
        }
        if !batched {
            continue;
        }
        match (shape.first(), rows) {
            (None, _) => return Err(format!("input `{name}` has no batch dimension")),
            (Some(first), Some(rows)) if *first != rows => {
                return Err(format!("input `{name}` has {first} rows, where another input has {rows}"));
            }
            (Some(first), _) => rows = Some(*first),
        }
    }
    Ok(rows.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rpc::{Answer, WorkerId};
    use std::sync::mpsc::{Receiver, channel};

    fn payload(request: u64, tensors: &[(&str, &[usize])]) -> (Payload, Receiver<Answer>) {
        let (sender, receiver) = channel();
        let inputs = tensors.iter().map(|(name, shape)| Tensor {
            name: (*name).into(),
            datatype: DataType::Uint8,
            shape: shape.to_vec(),
            data: Bytes::from(vec![request as u8; shape.iter().product()]),
        });
        let answer = Box::new(move |answer| sender.send(answer).unwrap());
        (Payload { request, inputs: inputs.collect(), answer }, receiver)
    }

    fn part(batch: u64, size: usize, payloads: Vec<Payload>) -> Part {
        Part { worker: WorkerId(1), node: 0, address: "".into(), model: 0, batch, size, payloads }
    }

    #[test]
    fn a_batch_is_complete_with_its_last_part_and_given_up_in_time() {
        let start = Instant::now();
        let mut assembly = Assembly::new(Duration::from_secs(1));
        let (one, _) = payload(1, &[]);
        let (two, answer) = payload(2, &[]);
        let (late, late_answer) = payload(3, &[]);
        let (other, other_answer) = payload(4, &[]);
        assert!(assembly.add(start, part(7, 2, vec![one])).is_none());
        assert!(assembly.add(start, part(8, 2, vec![two])).is_none());
        assert!(assembly.add(start, part(9, 2, vec![other])).is_none());
        let batch = assembly.add(start, part(7, 2, vec![payload(5, &[]).0])).unwrap();
        assert_eq!((batch.number, batch.payloads.len()), (7, 2));
        assembly.abandon();
        assert_eq!(other_answer.recv().unwrap().unwrap_err(), Failure::WorkerDied);
        assert_eq!(answer.recv().unwrap().unwrap_err(), Failure::WorkerDied);

        let (two, answer) = payload(2, &[]);
        assembly.add(start, part(10, 2, vec![two]));
        assert_eq!(assembly.next_deadline(), Some(start + Duration::from_secs(1)));
        assert!(assembly.expire(start).is_empty());
        assert_eq!(assembly.expire(start + Duration::from_secs(1)), [(10, 2)]);
        assert!(answer.recv().unwrap().unwrap_err().to_string().contains("only 1 of the batch's 2 requests"));
        assert!(assembly.add(start, part(10, 2, vec![late])).is_none());
        assert!(late_answer.recv().unwrap().is_err());
        assert!(assembly.is_empty());
    }

    #[test]
    fn equal_shapes_share_a_group_whatever_the_order_and_rows() {
        let requests = [
            payload(1, &[("a", &[1, 3]), ("b", &[1])]).0,
            payload(2, &[("b", &[2]), ("a", &[2, 3])]).0,
            payload(3, &[("a", &[1, 4]), ("b", &[1])]).0,
            payload(4, &[("a", &[1, 3])]).0,
            payload(5, &[("a", &[1, 3]), ("b", &[2])]).0,
        ]
        .map(|payload| payload.inputs);
        let (groups, refused) = group(&requests, true);
        let members: Vec<&[usize]> = groups.iter().map(|group| &group.members[..]).collect();
        assert_eq!(members, [&[0, 1][..], &[2], &[3]]);
        assert_eq!(refused, [(4, "input `b` has 2 rows, where another input has 1".to_string())]);
        let columns = groups[0].columns(&requests, true);
        assert_eq!((columns[0].name, &columns[0].shape[..]), ("a", &[3, 3][..]));
        assert_eq!(columns[0].pieces, [&[1u8; 3][..], &[2u8; 6]]);
        assert_eq!((columns[1].name, &columns[1].shape[..]), ("b", &[3][..]));
    }

    #[test]
    fn without_a_batch_dimension_each_request_stands_alone() {
        let requests = [payload(1, &[("a", &[])]).0, payload(2, &[("a", &[])]).0].map(|payload| payload.inputs);
        let (groups, refused) = group(&requests, false);
        assert_eq!((groups.len(), refused.len()), (2, 0));
        assert_eq!(groups[1].columns(&requests, false)[0].shape, [0usize; 0]);
        let (groups, refused) = group(&requests, true);
        assert_eq!((groups.len(), refused.len()), (0, 2));
    }
}
