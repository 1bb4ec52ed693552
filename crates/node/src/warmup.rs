//! Runs a model before anybody asks it: to show that it answers, so that the first request is not the slowest, and to
//! measure how long batches take.
//!
//! What goes in is what a client could send: the deployment's own example, or else zeros and empty strings as large as
//! the model declares, with 1 where any size will do. What comes out passes the checks that answers to clients pass. A
//! request by itself and, where there are batches, a batch of two are answered in any case; larger ones while there is
//! time. Whoever does not answer them is not ready. How long is too long is not decided here: the scheduler knows.

use crate::batch::Column;
use crate::connection::{Broken, Connection, Said, check_outputs, split};
use crate::example;
use crate::logs::Logs;
use config::TensorSpec;
use policy::Span;
use rpc::{ModelInfo, Tensor};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs that count, of which the fastest is taken: noise only ever makes a run slower.
const RUNS: usize = 3;

/// Batches up to this size are tried however long that takes.
const PROVEN: usize = 2;

/// The most memory that one batch may take; larger ones are not measured.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// The most that a request of the declared shape may take.
const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

/// How often a warm-up that waits for an answer looks for orders.
const LOOK: Duration = Duration::from_millis(20);

/// The most letters of what a model said.
const LETTERS_MAX: usize = 400;

/// How to warm up.
pub(crate) struct Warmup<'a> {
    pub(crate) process: BorrowedFd<'a>,
    /// About how long it may take. A model slower than this runs all the same, twice and with a batch of two.
    pub(crate) budget: Duration,
    /// How long a run may take.
    pub(crate) batch_timeout: Duration,
    pub(crate) logs: &'a Logs,
    /// Whether a model whose outputs do not grow with its inputs has no batch dimension after all.
    pub(crate) doubt_batches: bool,
    /// A file with a request that the model takes.
    pub(crate) example: Option<&'a Path>,
    /// Whether the worker is to end.
    pub(crate) stopped: &'a dyn Fn() -> bool,
}

/// Why a worker is not ready.
#[derive(Debug)]
pub(crate) enum NotReady {
    /// It cannot be talked to.
    Broken(Broken),
    /// Its model does not answer as it should: what is wrong and what to do, in a line.
    Unfit(String),
    /// It was told to stop meanwhile.
    Stopped,
}

impl From<Broken> for NotReady {
    fn from(broken: Broken) -> NotReady {
        NotReady::Broken(broken)
    }
}

/// Why a run does not count.
enum Trouble {
    /// The model said no.
    Refused(String),
    /// It answered with something else than it declares, or than a batch demands.
    Outputs(String),
}

impl Trouble {
    /// Whether a batch of this size failed for being one: what was sent is not to blame alone.
    fn is_about_batches(&self, size: usize) -> bool {
        size > 1 || matches!(self, Trouble::Outputs(_))
    }

    /// What is wrong with a model whose batch of this size failed so, and what to do.
    fn explain(&self, size: usize, example: bool) -> String {
        match self {
            _ if size > 1 => format!(
                "a batch of {size} failed though a single request did not: {self}; mend `predict`, or deploy the model \
                 with `--max-batch {}`",
                size / 2
            ),
            // The worker says itself what to do.
            Trouble::Refused(reason) if reason.starts_with("predict returned") => self.to_string(),
            Trouble::Refused(_) if example => format!("the request of its `warmup` file failed: {self}"),
            Trouble::Refused(_) => format!(
                "a request of zeros failed: {self}; mend the model, or let `--warmup FILE` name a request that it takes"
            ),
            Trouble::Outputs(_) => format!("{self}; change what it returns, or what it declares"),
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Trouble::Refused(reason) | Trouble::Outputs(reason)) = self;
        f.write_str(&one_line(reason))
    }
}

impl Warmup<'_> {
    /// Measures batch sizes 1, 2, 4 and so on. Corrects what is known of the model where a run shows better.
    pub(crate) fn run(
        &self,
        connection: &mut Connection,
        info: &mut ModelInfo,
    ) -> Result<Vec<(usize, Span)>, NotReady> {
        let start = Instant::now();
        let request = self.request(info).map_err(NotReady::Unfit)?;
        let mut measured: Vec<(usize, Span)> = Vec::new();
        for size in sizes(info.max_batch) {
            // Two runs of twice the size take about four times as long.
            let next = measured.last().map_or(Duration::ZERO, |(_, took)| Duration::from_nanos(took.nanos() * 4));
            let fits = request.iter().map(|tensor| tensor.data.len()).sum::<usize>().saturating_mul(size) <= BYTES_MAX;
            if size > 1 && !fits || size > PROVEN && start.elapsed() + next > self.budget {
                break;
            }
            match self.measure(connection, info, size, &request, start)? {
                Ok(took) => measured.extend(took.map(|took| (size, took))),
                // A single request that does run, and a batch that does not, or whose outputs are no batch.
                Err(trouble) if self.doubt_batches && info.max_batch > 0 && trouble.is_about_batches(size) => {
                    self.logs
                        .note(&format!("takes one request at a time, because a batch of {size} failed: {trouble}"));
                    info.max_batch = 0;
                    measured.truncate(1);
                    if measured.is_empty() {
                        match self.measure(connection, info, 1, &request, start)? {
                            Ok(took) => measured.extend(took.map(|took| (1, took))),
                            Err(trouble) => return Err(self.unfit(&trouble, 1)),
                        }
                    }
                    break;
                }
                Err(trouble) => return Err(self.unfit(&trouble, size)),
            }
        }
        match connection.hear()? {
            None => Ok(measured),
            Some(_) => Err(Broken::Nonsense("it answered without being asked".to_owned()).into()),
        }
    }

    fn unfit(&self, trouble: &Trouble, size: usize) -> NotReady {
        NotReady::Unfit(trouble.explain(size, self.example.is_some()))
    }

    /// What one client might send.
    fn request(&self, info: &ModelInfo) -> Result<Vec<Tensor>, String> {
        if info.inputs.is_empty() {
            return Err(
                "it does not say what its inputs are: list them as `inputs` in its class, or under [[model]]".into()
            );
        }
        if let Some(file) = self.example {
            return example::read(file, info).map_err(|why| format!("its `warmup` file {}: {why}", file.display()));
        }
        info.inputs.iter().map(zeros).collect()
    }

    /// How long a batch of this size takes; `None` when there was no time to find out, and it was answered all the same.
    fn measure(
        &self,
        connection: &mut Connection,
        info: &mut ModelInfo,
        size: usize,
        request: &[Tensor],
        start: Instant,
    ) -> Result<Result<Option<Span>, Trouble>, NotReady> {
        let batched = info.max_batch > 0;
        let columns: Vec<Column<'_>> = request.iter().map(|tensor| column(tensor, batched, size)).collect();
        let rows = batched.then_some(size);
        let mut best = None;
        for run in 0..=RUNS {
            let before = Instant::now();
            let outputs = match self.exchange(connection, &columns)? {
                Ok(outputs) => outputs,
                Err(reason) => return Ok(Err(Trouble::Refused(reason))),
            };
            let took = before.elapsed();
            let checked = check_outputs(&outputs, info, rows);
            let checked =
                checked.and_then(|()| if batched { split(&outputs, &vec![1; size]).map(drop) } else { Ok(()) });
            if let Err(reason) = checked {
                return Ok(Err(Trouble::Outputs(reason)));
            }
            if run == 0 {
                // The first run allocates, tunes and compiles.
                if info.outputs.is_empty() {
                    info.outputs = outputs.iter().map(|output| declare(output, batched)).collect();
                }
                // What is proven is also measured: a guess would be taken for how long such a batch takes.
                if size > PROVEN && start.elapsed() > self.budget {
                    break;
                }
                continue;
            }
            best = Some(best.map_or(took, |best: Duration| best.min(took)));
            if start.elapsed() > self.budget {
                break;
            }
        }
        Ok(Ok(best.map(|best| Span::from_nanos(best.as_nanos() as u64))))
    }

    /// Has the worker run tensors and waits for what comes of it.
    fn exchange(&self, connection: &mut Connection, columns: &[Column<'_>]) -> Result<Said, NotReady> {
        if let Err(reason) = connection.post(columns)? {
            return Ok(Err(reason));
        }
        let deadline = Instant::now() + self.batch_timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match connection.wait(self.process, left.min(LOOK))? {
                Some(said) => return Ok(said),
                None if left.is_zero() => return Err(Broken::Silent.into()),
                None if (self.stopped)() => return Err(NotReady::Stopped),
                None => {}
            }
        }
    }
}

/// A text as one line, of a length that people read.
pub(crate) fn one_line(text: &str) -> String {
    let text = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let text = text.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => text[..end].to_owned() + "…",
        None => text,
    }
}

/// Powers of two up to the largest batch, and that.
fn sizes(max_batch: usize) -> impl Iterator<Item = usize> {
    let most = max_batch.max(1);
    let powers = std::iter::successors(Some(1usize), |size| Some(size * 2)).take_while(move |size| *size < most);
    powers.chain(std::iter::once(most))
}

/// The same input of so many requests.
fn column(tensor: &Tensor, batched: bool, size: usize) -> Column<'_> {
    let mut shape = tensor.shape.clone();
    if let Some(first) = shape.first_mut().filter(|_| batched) {
        *first = size;
    }
    let pieces = vec![&tensor.data[..]; if batched { size } else { 1 }];
    Column { name: &tensor.name, datatype: tensor.datatype, shape, pieces }
}

/// Zeros for one input of one request.
fn zeros(spec: &TensorSpec) -> Result<Tensor, String> {
    let shape: Vec<usize> = spec.shape.iter().map(|dimension| usize::try_from(*dimension).unwrap_or(1)).collect();
    // An empty string is four zeros: its length.
    let bytes = rpc::tensor::elements(&shape).and_then(|count| count.checked_mul(spec.datatype.size().unwrap_or(4)));
    match bytes.filter(|bytes| *bytes <= REQUEST_BYTES_MAX) {
        Some(bytes) => {
            let data = vec![0; bytes].into();
            Ok(Tensor { name: spec.name.as_str().into(), datatype: spec.datatype, shape, data })
        }
        None => {
            Err(format!("input `{}` is declared with shape {:?}, which no request can bring", spec.name, spec.shape))
        }
    }
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

    #[test]
    fn reasons_are_one_line() {
        assert_eq!(one_line("  a\n\tb\u{0}c \r\n"), "a b c");
        assert_eq!(one_line(&"é".repeat(500)).chars().count(), LETTERS_MAX + 1);
    }
}
