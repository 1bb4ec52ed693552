//! What a server said no with, as a class: the text without the figures that differ from request to request.

/// Letters of a reason that are kept.
const LETTERS_MAX: usize = 160;

/// The class of an answer's body: of its `error` where it is the protocol's, of its text otherwise.
pub(crate) fn class(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Told {
        error: String,
    }
    match serde_json::from_slice::<Told>(body) {
        Ok(told) => without_numbers(&told.error),
        Err(_) => without_numbers(&String::from_utf8_lossy(body)),
    }
}

/// Each number becomes `#`, and any run of white space a space. Digits inside a word stay: they are part of a name.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars().peekable();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        let in_word = before.is_alphanumeric() || before == '_' || before == '-';
        if letter.is_ascii_digit() && !in_word {
            while letters.next_if(|next| next.is_ascii_digit() || *next == '.').is_some() {}
            out.push('#');
            before = '#';
            continue;
        }
        let letter = if letter.is_whitespace() || letter.is_control() { ' ' } else { letter };
        if letter != ' ' || before != ' ' {
            out.push(letter);
        }
        before = letter;
    }
    match out.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => out[..end].trim_end().to_owned() + "…",
        None => out.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_request_to_request_is_left_out() {
        let check = |body: &str, expected: &str| assert_eq!(class(body.as_bytes()), expected);
        check(r#"{"error": "model `resnet50`: late by 12.5ms, 812 wait"}"#, "model `resnet50`: late by #ms, # wait");
        check("Too  many\nrequests\n", "Too many requests");
        check("", "");
        check(&"x".repeat(500), &("x".repeat(160) + "…"));
        assert_eq!(class(b"\xff\x00{"), "\u{fffd} {");
    }
}
