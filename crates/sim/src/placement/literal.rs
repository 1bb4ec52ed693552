//! Python's literals, as far as event traces use them: dictionaries, lists, text and numbers. JSON's are among them.

/// Lists and dictionaries within each other, at most.
const DEPTH_MAX: usize = 16;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Text(String),
    Number(f64),
    List(Vec<Literal>),
    /// In the order they stand.
    Dictionary(Vec<(String, Literal)>),
}

/// Reads one value that takes up the whole text. `Err`: what was expected, and where.
pub(super) fn read(text: &str) -> Result<Literal, String> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.expected("the end of the line")),
    }
}

impl Literal {
    /// What it is, for messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Literal::Text(_) => "text",
            Literal::Number(_) => "a number",
            Literal::List(_) => "a list",
            Literal::Dictionary(_) => "a dictionary",
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    /// In bytes.
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The next letter that is not space.
    fn peek(&mut self) -> Option<char> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn take(&mut self, letter: char) -> bool {
        let found = self.peek() == Some(letter);
        self.at += if found { letter.len_utf8() } else { 0 };
        found
    }

    fn expected(&mut self, what: &str) -> String {
        let column = self.text[..self.at].chars().count() + 1;
        match self.peek() {
            None => format!("expected {what} at the end of the line"),
            Some(letter) => format!("expected {what} in column {column}, found `{letter}`"),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Literal, String> {
        if depth > DEPTH_MAX {
            return Err(self.expected(&format!("at most {DEPTH_MAX} lists and dictionaries within each other")));
        }
        match self.peek() {
            Some('{') => self.dictionary(depth),
            Some('[') => self.list(depth),
            Some('\'' | '"') => self.quoted().map(Literal::Text),
            Some(letter) if letter.is_ascii_digit() || matches!(letter, '-' | '+' | '.') => self.number(),
            _ => Err(self.expected("a value: text in quotes, a number, [...] or {...}")),
        }
    }

    fn dictionary(&mut self, depth: usize) -> Result<Literal, String> {
        self.take('{');
        let mut entries = Vec::new();
        while !self.take('}') {
            let key = match self.peek() {
                Some('\'' | '"') => self.quoted()?,
                _ => return Err(self.expected("a key in quotes or `}`")),
            };
            if !self.take(':') {
                return Err(self.expected("`:`"));
            }
            entries.push((key, self.value(depth + 1)?));
            if !self.take(',') && self.peek() != Some('}') {
                return Err(self.expected("`,` or `}`"));
            }
        }
        Ok(Literal::Dictionary(entries))
    }

    fn list(&mut self, depth: usize) -> Result<Literal, String> {
        self.take('[');
        let mut values = Vec::new();
        while !self.take(']') {
            values.push(self.value(depth + 1)?);
            if !self.take(',') && self.peek() != Some(']') {
                return Err(self.expected("`,` or `]`"));
            }
        }
        Ok(Literal::List(values))
    }

    fn quoted(&mut self) -> Result<String, String> {
        let quote = self.peek().unwrap_or('\'');
        let mut text = String::new();
        let mut letters = self.rest().char_indices().skip(1);
        while let Some((index, letter)) = letters.next() {
            match letter {
                '\\' => text.extend(letters.next().map(|(_, letter)| letter)),
                letter if letter == quote => {
                    self.at += index + quote.len_utf8();
                    return Ok(text);
                }
                letter => text.push(letter),
            }
        }
        Err(format!(
            "expected {quote} after the text that starts in column {}",
            self.text[..self.at].chars().count() + 1
        ))
    }

    fn number(&mut self) -> Result<Literal, String> {
        let rest = self.rest();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '+' | '.' | '_');
        let digits = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
        let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
        let number = number.ok_or_else(|| format!("expected a number, found `{digits}`"))?;
        self.at += digits.len();
        Ok(Literal::Number(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_read() {
        let text = |text: &str| Literal::Text(text.to_owned());
        assert_eq!(
            read(r#" {'a': [1, -0.5e1, ], "b\'c": {}} "#),
            Ok(Literal::Dictionary(vec![
                ("a".into(), Literal::List(vec![Literal::Number(1.0), Literal::Number(-5.0)])),
                ("b'c".into(), Literal::Dictionary(vec![])),
            ]))
        );
        assert_eq!(read("'ä'"), Ok(text("ä")));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_column() {
        let why = |text: &str| read(text).unwrap_err();
        assert_eq!(why("{'a' 1}"), "expected `:` in column 6, found `1`");
        assert_eq!(why("[1 2]"), "expected `,` or `]` in column 4, found `2`");
        assert_eq!(why("[1"), "expected `,` or `]` at the end of the line");
        assert_eq!(why("1 1"), "expected the end of the line in column 3, found `1`");
        assert_eq!(why("'a"), "expected ' after the text that starts in column 1");
        assert_eq!(why("1e999"), "expected a number, found `1e999`");
        assert!(why("None").starts_with("expected a value: "), "{}", why("None"));
        assert!(why(&"[".repeat(50)).contains("at most 16"), "{}", why(&"[".repeat(50)));
    }
}
