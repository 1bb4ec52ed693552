//! Published profiles as tables. Three layouts are known, told apart by their first line:
//!
//! - `Mig instance,Batch size,Workload Number,Throughput,Latency`: one model by MIG slices, batch and number
//!   of processes sharing the slice (ParvaGPU). Latency there is rounded to a millisecond, so it is taken
//!   from the throughput, which is that of one of the processes: `batch / throughput`.
//! - `model,gpu,runtime,alpha_ms,...`: a fitted line and a fitted hinge per row.
//! - four numbers a row and no header: batch, SM percent, latency in seconds, throughput (Dilu).

use super::{LatencyTable, MAX_BATCH};
use crate::Span;
use std::fmt;

/// Which of a file's measurements are wanted. What is `None` takes the layout's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// MIG slices (ParvaGPU); 7, the whole GPU, by default.
    pub instance: Option<u32>,
    /// Processes sharing the slice (ParvaGPU); 1 by default.
    pub processes: Option<u32>,
    /// Percent of the streaming multiprocessors (Dilu); 100 by default.
    pub share: Option<u32>,
    /// The row's model (fitted profiles); needed there.
    pub model: Option<String>,
    /// The row's GPU (fitted profiles); needed there.
    pub gpu: Option<String>,
    /// `true` for the fitted line, `false` for the fitted hinge (the default), where a row has both.
    pub line: bool,
}

/// Why a profile could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvError {
    /// Line in the file, from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.problem),
            line => write!(f, "line {line}: {}", self.problem),
        }
    }
}

impl std::error::Error for CsvError {}

const LAYOUTS: &str = "expected a header \"Mig instance,Batch size,...\" or \"model,gpu,runtime,...\", or rows of four \
     numbers: batch, SM percent, latency in seconds, throughput";

impl LatencyTable {
    /// Reads a table from the text of a published profile.
    pub fn from_csv(text: &str, selection: &Selection) -> Result<LatencyTable, CsvError> {
        let first = text.lines().next().unwrap_or_default();
        if first.starts_with("Mig instance,Batch size,Workload Number,Throughput") {
            by_instance(text, selection)
        } else if first.starts_with("model,gpu,runtime,alpha_ms,beta_ms,floor_ms,alpha_tail_ms,beta_tail_ms") {
            fitted(text, selection)
        } else if first.split(',').count() == 4 && first.split(',').all(|cell| cell.trim().parse::<f64>().is_ok()) {
            by_share(text, selection)
        } else {
            Err(CsvError { line: 1, problem: LAYOUTS.to_owned() })
        }
    }
}

fn by_instance(text: &str, selection: &Selection) -> Result<LatencyTable, CsvError> {
    let (instance, processes) = (selection.instance.unwrap_or(7), selection.processes.unwrap_or(1));
    let mut points = Vec::new();
    for (line, cells) in rows(text).skip(1) {
        let [row_instance, batch, row_processes, throughput, _latency] = numbers(line, &cells)?;
        // A throughput of zero marks a configuration that ran out of memory.
        if row_instance == f64::from(instance) && row_processes == f64::from(processes) && throughput > 0.0 {
            points.push((batch_size(line, batch)?, seconds(line, batch / throughput)?));
        }
    }
    table(points, || format!("no measurement with instance = {instance} and processes = {processes}"))
}

fn by_share(text: &str, selection: &Selection) -> Result<LatencyTable, CsvError> {
    let share = selection.share.unwrap_or(100);
    let mut points = Vec::new();
    for (line, cells) in rows(text) {
        let [batch, row_share, latency, _throughput] = numbers(line, &cells)?;
        if row_share == f64::from(share) {
            points.push((batch_size(line, batch)?, seconds(line, latency)?));
        }
    }
    table(points, || format!("no measurement with share = {share}"))
}

fn fitted(text: &str, selection: &Selection) -> Result<LatencyTable, CsvError> {
    let (Some(model), Some(gpu)) = (&selection.model, &selection.gpu) else {
        let problem = "this profile holds many models: say which with model = \"...\" and gpu = \"...\"".to_owned();
        return Err(CsvError { line: 0, problem });
    };
    for (line, cells) in rows(text).skip(1) {
        if cells.first() != Some(model) || cells.get(1) != Some(gpu) {
            continue;
        }
        let fit = cells.get(3..8).ok_or_else(|| short_row(line, 8, cells.len()))?;
        let number = |index: usize| parse(line, &fit[index]);
        return Ok(if selection.line || fit[2].is_empty() {
            LatencyTable::hinge(0.0, number(0)?, number(1)?, MAX_BATCH)
        } else {
            LatencyTable::hinge(number(2)?, number(3)?, number(4)?, MAX_BATCH)
        });
    }
    Err(CsvError { line: 0, problem: format!("no row with model = \"{model}\" and gpu = \"{gpu}\"") })
}

fn table(points: Vec<(usize, Span)>, none: impl FnOnce() -> String) -> Result<LatencyTable, CsvError> {
    if points.is_empty() { Err(CsvError { line: 0, problem: none() }) } else { Ok(LatencyTable::points(&points)) }
}

/// Cells of every line that is not blank, with its number. A quoted cell may hold commas.
pub(crate) fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| (index + 1, cells(line)))
}

fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            _ => cells.last_mut().expect("there is always a cell").push(c),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

pub(crate) fn numbers<const N: usize>(line: usize, cells: &[String]) -> Result<[f64; N], CsvError> {
    let mut numbers = [0.0; N];
    if cells.len() != N {
        return Err(short_row(line, N, cells.len()));
    }
    for (number, cell) in numbers.iter_mut().zip(cells) {
        *number = parse(line, cell)?;
    }
    Ok(numbers)
}

fn parse(line: usize, cell: &str) -> Result<f64, CsvError> {
    let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| CsvError { line, problem: format!("expected a number, found \"{cell}\"") })
}

fn short_row(line: usize, wanted: usize, found: usize) -> CsvError {
    CsvError { line, problem: format!("expected {wanted} cells, found {found}") }
}

pub(crate) fn batch_size(line: usize, batch: f64) -> Result<usize, CsvError> {
    let whole = batch.fract() == 0.0 && (1.0..=1e6).contains(&batch);
    if whole { Ok(batch as usize) } else { Err(CsvError { line, problem: format!("{batch} is no batch size") }) }
}

pub(crate) fn seconds(line: usize, seconds: f64) -> Result<Span, CsvError> {
    let sensible = seconds > 0.0 && seconds < 1e6;
    let problem = || CsvError { line, problem: format!("{seconds} s is no latency") };
    if sensible { Ok(Span::from_secs_f64(seconds)) } else { Err(problem()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCES: &str = "Mig instance,Batch size,Workload Number,Throughput,Latency\n\
         1,1,1,100.0,0.01\n7,1,1,200.0,0.005\n7,2,1,400.0,0.005\n7,4,1,500.0,0.008\n7,4,2,200.0,0.02\n7,8,2,0,0\n";

    #[test]
    fn a_whole_gpu_is_the_default_instance() {
        let table = LatencyTable::from_csv(INSTANCES, &Selection::default()).unwrap();
        let latencies: Vec<_> = (1..=table.max_batch()).map(|size| table.latency(size).millis()).collect();
        assert_eq!(latencies, [5.0, 5.0, 6.5, 8.0]);
    }

    #[test]
    fn a_slice_shared_by_processes_is_selected() {
        let selection = Selection { processes: Some(2), ..Selection::default() };
        let table = LatencyTable::from_csv(INSTANCES, &selection).unwrap();
        assert_eq!(table.latency(4).millis(), 20.0);
        let missing = Selection { instance: Some(3), ..Selection::default() };
        let error = LatencyTable::from_csv(INSTANCES, &missing).unwrap_err();
        assert_eq!(error.to_string(), "no measurement with instance = 3 and processes = 1");
    }

    #[test]
    fn shares_of_a_gpu_and_fitted_rows_are_read() {
        let table =
            LatencyTable::from_csv("1.0,100.0,0.004,250\n2.0,100.0,0.006,333\n", &Selection::default()).unwrap();
        assert_eq!(table.latency(2).millis(), 6.0);
        let zoo = "model,gpu,runtime,alpha_ms,beta_ms,floor_ms,alpha_tail_ms,beta_tail_ms,source,licence,confidence\n\
                   m,A100,\"X, Y\",0.3,1.5,2.0,0.4,1.0,s,l,c\n";
        let selection = Selection { model: Some("m".into()), gpu: Some("A100".into()), ..Selection::default() };
        assert_eq!(LatencyTable::from_csv(zoo, &selection).unwrap().latency(1).millis(), 2.0);
        let line = Selection { line: true, ..selection };
        assert_eq!(LatencyTable::from_csv(zoo, &line).unwrap().latency(1).millis(), 1.8);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |text: &str, expected: &str| {
            assert_eq!(LatencyTable::from_csv(text, &Selection::default()).unwrap_err().to_string(), expected);
        };
        check("", &format!("line 1: {LAYOUTS}"));
        check("hello", &format!("line 1: {LAYOUTS}"));
        check("1,100,0.1,2\n1,100,x,2\n", "line 2: expected a number, found \"x\"");
        check("1,100,0.1,2\n1,100\n", "line 2: expected 4 cells, found 2");
        check("1.5,100,0.1,2\n", "line 1: 1.5 is no batch size");
        check("1,100,-3,2\n", "line 1: -3 s is no latency");
    }
}
