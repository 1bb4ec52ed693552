//! Columns that line up: the first to the left, the others to the right, two spaces apart.

/// Rows as text, a line each. Rows may be of different lengths.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let letters = |text: &String| text.chars().count();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(letters).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cell = |(column, text): (usize, &String)| match widths[column] {
            width if column == 0 => format!("{text:<width$}"),
            width => format!("  {text:>width$}"),
        };
        let line: String = row.iter().enumerate().map(cell).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A row of cells.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [row(["policy", "rate"]), row(["eager-timeout", "5,458", "–"]), row(["", "7"])];
        assert_eq!(align(&rows), "policy          rate\neager-timeout  5,458  –\n                   7\n");
        assert_eq!(align(&[]), "");
    }
}
