//! JSON, read in one pass from where it lies. Nothing is built that was not asked for: the reader says what it
//! expects next and skips what it does not know.
//!
//! The text is checked to be UTF-8 once, before. Literals that JSON does not have (`NaN`, `Infinity`) are refused.

use super::number::Number;
use std::borrow::Cow;

/// Deeper nesting is refused, wherever it is.
const DEEPEST: usize = 128;

/// A place in a JSON text.
pub(super) struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of a text.
    pub(super) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, bytes: text.as_bytes(), at: 0 }
    }

    /// The same text, at another byte.
    pub(super) fn back_at(&self, at: usize) -> Cursor<'a> {
        Cursor { at, ..*self }
    }

    /// The byte it is at.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// How many bytes there are from here.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next byte that is not white space, left where it is; 0 at the end.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return *byte,
                None => return 0,
            }
        }
    }

    /// Passes a byte when it comes next.
    #[inline]
    pub(super) fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == wanted;
        self.at += usize::from(found);
        found
    }

    /// Passes a byte that must come next.
    #[inline]
    pub(super) fn expect(&mut self, wanted: u8) -> Result<(), String> {
        if self.take(wanted) { Ok(()) } else { Err(self.expected(&format!("`{}`", char::from(wanted)))) }
    }

    /// Passes the end of the text, which must come next.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.peek();
        if self.left() == 0 { Ok(()) } else { Err(self.expected("nothing more")) }
    }

    /// Goes through an object, whose values `field` reads or skips.
    pub(super) fn object(
        &mut self,
        mut field: impl FnMut(&mut Cursor<'a>, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            field(self, &key)?;
            if !self.take(b',') {
                return if self.take(b'}') { Ok(()) } else { Err(self.expected("`,` or `}`")) };
            }
        }
    }

    /// Goes through an array, whose items `item` reads or skips.
    pub(super) fn array(&mut self, mut item: impl FnMut(&mut Cursor<'a>) -> Result<(), String>) -> Result<(), String> {
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                return if self.take(b']') { Ok(()) } else { Err(self.expected("`,` or `]`")) };
            }
        }
    }

    /// Reads a string.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, String> {
        if !self.take(b'"') {
            return Err(self.expected("a string"));
        }
        let start = self.at;
        self.plain()?;
        if self.bytes[self.at] == b'"' {
            self.at += 1;
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        let mut whole = self.text[start..self.at].to_string();
        loop {
            // A backslash: `plain` stops at nothing else.
            self.at += 1;
            whole.push(self.escape()?);
            let start = self.at;
            self.plain()?;
            whole.push_str(&self.text[start..self.at]);
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Ok(Cow::Owned(whole));
            }
        }
    }

    /// Passes letters up to a quotation mark or a backslash, which is there.
    fn plain(&mut self) -> Result<(), String> {
        loop {
            match self.bytes.get(self.at) {
                Some(b'"' | b'\\') => return Ok(()),
                Some(0..0x20) => return Err(self.problem("a control character in a string must be escaped")),
                Some(_) => self.at += 1,
                None => return Err(self.problem("a string does not end")),
            }
        }
    }

    /// Reads what follows a backslash.
    fn escape(&mut self) -> Result<char, String> {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.four_digits()?;
                let code = if (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    match self.four_digits()? {
                        second @ 0xdc00..0xe000 => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                        _ => first,
                    }
                } else {
                    first
                };
                char::from_u32(code).ok_or_else(|| self.problem("half of a surrogate pair is no letter"))?
            }
            _ => return Err(self.problem("a backslash before what needs none")),
        })
    }

    fn four_digits(&mut self) -> Result<u32, String> {
        let digits = self.bytes.get(self.at..self.at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else { return Err(self.problem("`\\u` needs four hexadecimal digits")) };
        let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
        self.at += 4;
        Ok(digits.iter().fold(0, |code, byte| code * 16 + digit(byte)))
    }

    /// Reads a number.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Result<Number<'a>, String> {
        self.peek();
        match Number::read(self.text, self.at) {
            Some((number, end)) => {
                self.at = end;
                Ok(number)
            }
            None => Err(self.expected("a number")),
        }
    }

    /// Reads a number that must be a whole one, not below zero.
    pub(super) fn unsigned(&mut self, what: &str) -> Result<u64, String> {
        let number = self.number().map_err(|problem| format!("{what}: {problem}"))?;
        number.unsigned().ok_or_else(|| format!("{what} is {}; a whole number from 0 is expected", number.text))
    }

    /// Reads `true` or `false`.
    pub(super) fn boolean(&mut self) -> Result<bool, String> {
        self.peek();
        let (value, word) = if self.bytes[self.at..].starts_with(b"t") { (true, "true") } else { (false, "false") };
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.expected("`true` or `false`"));
        }
        self.at += word.len();
        Ok(value)
    }

    /// Passes a value, whatever it is.
    pub(super) fn skip(&mut self) -> Result<(), String> {
        self.skip_at(0)
    }

    fn skip_at(&mut self, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(self.problem("nested too deep"));
        }
        match self.peek() {
            b'{' => self.object(|inner, _| inner.skip_at(depth + 1)),
            b'[' => self.array(|inner| inner.skip_at(depth + 1)),
            b'"' => self.string().map(|_| ()),
            b't' | b'f' => self.boolean().map(|_| ()),
            b'n' if self.bytes[self.at..].starts_with(b"null") => {
                self.at += 4;
                Ok(())
            }
            b'-' | b'0'..=b'9' => self.number().map(|_| ()),
            _ => Err(self.expected("a value")),
        }
    }

    /// What is wrong with the next thing.
    #[cold]
    pub(super) fn expected(&self, what: &str) -> String {
        let rest = &self.text[self.at..];
        let found: String = rest.chars().take_while(|letter| !",]}: \n\r\t".contains(*letter)).take(20).collect();
        match (found.as_str(), rest.chars().next()) {
            ("", None) => self.problem(&format!("{what} is expected, and the text ends")),
            ("", Some(letter)) => self.problem(&format!("{what} is expected, and `{letter}` found")),
            (found, _) => self.problem(&format!("{what} is expected, and `{found}` found")),
        }
    }

    #[cold]
    fn problem(&self, what: &str) -> String {
        format!("JSON, byte {}: {what}", self.at)
    }
}

/// Writes a string, quoted.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(DIGITS[usize::from(byte >> 4)]);
                out.push(DIGITS[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&text.as_bytes()[plain..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Result<String, String> {
        let mut cursor = Cursor::new(text);
        let read = cursor.string()?.into_owned();
        cursor.end()?;
        Ok(read)
    }

    #[test]
    fn strings_read_as_a_general_reader_reads_them() {
        let texts = [
            r#""""#,
            r#""plain""#,
            r#""a\"b\\c\/d\b\f\n\r\t""#,
            r#""\u00e9\u20ac\ud83d\ude00 é€😀""#,
            r#""\ud83d""#,
            r#""\ud83dx""#,
            r#""\ud83d\u0041""#,
            r#""\udc00\ud83d""#,
            r#""\x""#,
            r#""\u12""#,
            r#""open"#,
            "\"line\nbreak\"",
            r#""a" "b""#,
        ];
        for text in texts {
            assert_eq!(string(text).ok(), serde_json::from_str::<String>(text).ok(), "{text}");
        }
    }

    #[test]
    fn what_is_skipped_is_still_json() {
        let check = |text: &str| {
            let mut cursor = Cursor::new(text);
            cursor.skip().and_then(|()| cursor.end())
        };
        let good = [r#"{"a": [1, -2.5e3, true, false, null, {"b": "c"}], "d": {}}"#, "[]", " 0 ", "[[],[[]]]"];
        good.into_iter().for_each(|text| assert_eq!(check(text), Ok(()), "{text}"));
        let bad =
            ["", "{", "[1,]", "{\"a\"}", "{\"a\":1,}", "NaN", "-Infinity", "nul", "01", "1.", "tru", "[1 2]", "1 1"];
        bad.into_iter().for_each(|text| assert!(check(text).is_err(), "{text}"));
        assert!(check(&"[".repeat(100_000)).unwrap_err().contains("nested too deep"));
    }

    #[test]
    fn strings_written_read_back() {
        for text in ["", "plain", "quo\"te \\ slash", "\u{0}\u{1f}\n\r\t", "é€😀"] {
            let mut out = Vec::new();
            write_string(text, &mut out);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
