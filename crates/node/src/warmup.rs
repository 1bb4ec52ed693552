//! Runs a model before anybody asks it: so that the first request is not the slowest, and to measure how long batches
//! take.
//!
//! Inputs are zeros, as large as the model declares, with 1 where any size will do. Not every model stands that: one
//! that refuses is served all the same, without measurements. What is found out here goes to the scheduler; nothing is
//! decided from it.

use crate::batch::Column;
use crate::connection::{Broken, Connection, check_outputs};
use crate::logs::Logs;
use policy::Span;
use rpc::{DataType, ModelInfo, Tensor, TensorSpec};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Runs that count, of which the fastest is taken: noise only ever makes a run slower.
const RUNS: usize = 3;

/// The most memory that zeros for one batch may take; larger batches are not measured.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// How to warm up.
pub(crate) struct Warmup<'a> {
    pub(crate) process: BorrowedFd<'a>,
    /// About how long it may take. A model slower than this runs twice all the same.
    pub(crate) budget: Duration,
    /// How long a run may take.
    pub(crate) batch_timeout: Duration,
    pub(crate) logs: &'a Logs,
    /// Whether a model whose outputs do not grow with its inputs has no batch dimension after all.
    pub(crate) doubt_batches: bool,
}

/// Why a run does not count.
enum Trouble {
    /// The model said no.
    Refused(String),
    /// It answered with something else than it declares, or than a batch demands.
    Outputs(String),
}

impl Trouble {
    /// Whether a batch of this size failed for being one: zeros alone are not to blame.
    fn is_about_batches(&self, size: usize) -> bool {
        size > 1 || matches!(self, Trouble::Outputs(_))
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Trouble::Refused(reason) | Trouble::Outputs(reason)) = self;
        f.write_str(reason)
    }
}

impl Warmup<'_> {
    /// Measures batch sizes 1, 2, 4 and so on. Corrects what is known of the model where a run shows better.
    pub(crate) fn run(&self, connection: &mut Connection, info: &mut ModelInfo) -> Result<Vec<(usize, Span)>, Broken> {
        let start = Instant::now();
        let mut measured: Vec<(usize, Span)> = Vec::new();
        if info.inputs.is_empty() {
            self.logs.note("not warmed up: the model does not say what its inputs are");
            return Ok(measured);
        }
        for size in sizes(info.max_batch) {
            // Two runs of twice the size take about four times as long.
            let next = measured.last().map_or(Duration::ZERO, |(_, took)| Duration::from_nanos(took.nanos() * 4));
            if !measured.is_empty() && start.elapsed() + next > self.budget {
                break;
            }
            let Some(zeros) = zeros(info, size) else { break };
            match self.measure(connection, info, size, &zeros, start)? {
                Ok(took) => measured.push((size, took)),
                // A single request that does run, and a batch that does not, or whose outputs are no batch.
                Err(trouble) if self.doubt_batches && info.max_batch > 0 && trouble.is_about_batches(size) => {
                    self.logs
                        .note(&format!("takes one request at a time, because a batch of {size} failed: {trouble}"));
                    info.max_batch = 0;
                    measured.truncate(1);
                    if measured.is_empty()
                        && let Ok(took) = self.measure(connection, info, 1, &zeros, start)?
                    {
                        measured.push((1, took));
                    }
                    break;
                }
                Err(trouble) => {
                    self.logs.note(&format!("not measured further, because a batch of {size} zeros failed: {trouble}"));
                    break;
                }
            }
        }
        Ok(measured)
    }

    fn measure(
        &self,
        connection: &mut Connection,
        info: &mut ModelInfo,
        size: usize,
        zeros: &[Zeros],
        start: Instant,
    ) -> Result<Result<Span, Trouble>, Broken> {
        let columns: Vec<Column<'_>> = zeros
            .iter()
            .map(|Zeros { name, datatype, shape, data }| Column {
                name,
                datatype: *datatype,
                shape: shape.clone(),
                pieces: vec![data],
            })
            .collect();
        let rows = (info.max_batch > 0).then_some(size);
        let mut best = Duration::MAX;
        for run in 0..=RUNS {
            let before = Instant::now();
            let outputs = match connection.exchange(&columns, self.process, self.batch_timeout)? {
                Ok(outputs) => outputs,
                Err(reason) => return Ok(Err(Trouble::Refused(reason))),
            };
            let took = before.elapsed();
            if let Err(reason) = check_outputs(&outputs, info, rows) {
                return Ok(Err(Trouble::Outputs(reason)));
            }
            if run == 0 {
                // The first run allocates, tunes and compiles.
                if info.outputs.is_empty() {
                    info.outputs = outputs.iter().map(|output| declare(output, rows.is_some())).collect();
                }
                continue;
            }
            best = best.min(took);
            if start.elapsed() > self.budget {
                break;
            }
        }
        Ok(Ok(Span::from_nanos(best.as_nanos() as u64)))
    }
}

/// Powers of two up to the largest batch, and that.
fn sizes(max_batch: usize) -> impl Iterator<Item = usize> {
    let most = max_batch.max(1);
    let powers = std::iter::successors(Some(1usize), |size| Some(size * 2)).take_while(move |size| *size < most);
    powers.chain(std::iter::once(most))
}

/// Zeros for one input.
struct Zeros {
    name: String,
    datatype: DataType,
    shape: Vec<usize>,
    data: Vec<u8>,
}

/// Zeros for each input. `None` when that is too much.
fn zeros(info: &ModelInfo, size: usize) -> Option<Vec<Zeros>> {
    let zero = |spec: &TensorSpec| {
        let mut shape: Vec<usize> =
            spec.shape.iter().map(|dimension| usize::try_from(*dimension).unwrap_or(1)).collect();
        if let Some(first) = shape.first_mut().filter(|_| info.max_batch > 0) {
            *first = size;
        }
        // An empty string is four zeros: its length.
        let bytes = rpc::tensor::elements(&shape)?.checked_mul(spec.datatype.size().unwrap_or(4))?;
        let (name, datatype) = (spec.name.clone(), spec.datatype);
        (bytes <= BYTES_MAX).then(|| Zeros { name, datatype, shape, data: vec![0; bytes] })
    };
    info.inputs.iter().map(zero).collect()
}

/// An output as a model would have declared it that answered so.
fn declare(output: &Tensor, batched: bool) -> TensorSpec {
    let mut shape: Vec<i64> = output.shape.iter().map(|dimension| *dimension as i64).collect();
    if let Some(first) = shape.first_mut().filter(|_| batched) {
        *first = -1;
    }
    TensorSpec { name: output.name.to_string(), datatype: output.datatype, shape }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_the_largest() {
        let check = |most, expected: &[usize]| assert_eq!(sizes(most).collect::<Vec<_>>(), expected);
        check(0, &[1]);
        check(1, &[1]);
        check(8, &[1, 2, 4, 8]);
        check(12, &[1, 2, 4, 8, 12]);
    }
}
