//! Batches, taken apart into what a worker can run at once.

use config::DataType;
use rpc::{Failure, Payload, Tensor, tensor};
use std::sync::Arc;

/// Answers requests with a failure.
pub(crate) fn fail(payloads: impl IntoIterator<Item = Payload>, failure: &Failure) {
    for payload in payloads {
        payload.answer.reply(Err(failure.clone()));
    }
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
    use rpc::Answer;
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
