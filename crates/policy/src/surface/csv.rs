//! Surfaces from text: rows of batch, SM percent, latency in seconds and throughput, as Dilu publishes them. A first
//! line of names is passed over.

use super::{Point, Share, Surface};
use crate::{CsvError, Span};

const COLUMNS: &str = "batch, SM percent, latency in seconds, throughput";

impl Surface {
    /// Reads rows of four numbers: batch, SM percent, latency in seconds, throughput in requests a second.
    pub fn from_csv(text: &str) -> Result<Surface, CsvError> {
        let mut points = Vec::new();
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let names = index == 0 && !line.contains(|c: char| c.is_ascii_digit());
            if !line.trim().is_empty() && !names {
                points.push(point(line).map_err(|problem| CsvError { line: index + 1, problem })?);
                lines.push(index + 1);
            }
        }
        if points.is_empty() {
            let problem = format!("there is no measurement: expected rows of four numbers: {COLUMNS}");
            return Err(CsvError { line: 0, problem });
        }
        Surface::new(&points).map_err(|error| CsvError { line: lines[error.index], problem: error.problem })
    }
}

fn point(line: &str) -> Result<Point, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [batch, percent, seconds, throughput] = cells[..] else {
        return Err(format!("expected four numbers, found {} cells: {COLUMNS}", cells.len()));
    };
    let number = |cell: &str| {
        let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| format!("expected a number, found \"{cell}\": a row is {COLUMNS}"))
    };
    let batch = Some(number(batch)?).filter(|batch| batch.fract() == 0.0 && (1.0..=1e6).contains(batch));
    let share = Share::from_percent(number(percent)?);
    let seconds = Some(number(seconds)?).filter(|seconds| *seconds > 0.0 && *seconds < 1e6);
    Ok(Point {
        batch: batch.ok_or_else(|| format!("{} is no batch size: expected a whole number from 1", cells[0]))? as usize,
        share: share.ok_or_else(|| format!("{percent} is no share: expected a percentage above 0, up to 100"))?,
        latency: Span::from_secs_f64(
            seconds.ok_or_else(|| format!("{} s is no latency: expected seconds above 0", cells[2]))?,
        ),
        throughput: number(throughput)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_points_with_names_above_them_or_not() {
        let rows = "1.0,10.0,0.004,250\n\n2,10,0.006,333.3\n";
        let surface = Surface::from_csv(rows).unwrap();
        assert_eq!(surface.points().len(), 2);
        assert_eq!(surface.points()[1].latency, Span::from_millis(6));
        assert_eq!(Surface::from_csv(&format!("batch,share,latency,throughput\r\n{rows}")), Ok(surface));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Surface::from_csv(text).unwrap_err().to_string(), expected);
        };
        check("", &format!("there is no measurement: expected rows of four numbers: {COLUMNS}"));
        check("hello\n", &format!("there is no measurement: expected rows of four numbers: {COLUMNS}"));
        check("1,10,0.1\n", &format!("line 1: expected four numbers, found 3 cells: {COLUMNS}"));
        check("1,10,0.1,5\n2,x,0.1,5\n", &format!("line 2: expected a number, found \"x\": a row is {COLUMNS}"));
        check("1.5,10,0.1,5\n", "line 1: 1.5 is no batch size: expected a whole number from 1");
        check("1,0,0.1,5\n", "line 1: 0 is no share: expected a percentage above 0, up to 100");
        check("1,10,-0.1,5\n", "line 1: -0.1 s is no latency: expected seconds above 0");
        check("1,10,0.1,-5\n", "line 1: -5 is no throughput: expected a number above zero");
        check(
            "1,10,0.1,5\n1,20,0.1,5\n1,10,0.2,5\n",
            "line 3: batch 1 at 10% was given before: keep one of the two measurements",
        );
    }
}
