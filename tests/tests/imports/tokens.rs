//! Words and marks of a Rust source, without its comments, its literals and what is only there for tests.

/// Tokens of `text`: words, `::` as one, and every other mark alone.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&mark) = text.get(at) {
        let next = text.get(at + 1).copied().unwrap_or(' ');
        at = match mark {
            '/' if next == '/' => end_of_line(&text, at),
            '/' if next == '*' => end_of_comment(&text, at),
            '"' => end_of_string(&text, at),
            '\'' => end_of_quote(&text, at),
            ':' if next == ':' => {
                tokens.push("::".to_owned());
                at + 2
            }
            _ if is_word(mark) => {
                let end = (at..text.len()).find(|&end| !is_word(text[end])).unwrap_or(text.len());
                let word: String = text[at..end].iter().collect();
                match end_of_raw(&text, end).filter(|_| matches!(word.as_str(), "r" | "br" | "cr")) {
                    Some(end) => end,
                    None => {
                        tokens.push(word);
                        end
                    }
                }
            }
            _ if mark.is_whitespace() => at + 1,
            _ => {
                tokens.push(mark.to_string());
                at + 1
            }
        };
    }
    tokens
}

/// What is left of `tokens` without the items under `#[cfg(test)]`, and the modules among those that have their own file.
pub(crate) fn without_tests(tokens: &[String]) -> (Vec<String>, Vec<String>) {
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut files, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if !tokens[at..].iter().take(marker.len()).eq(marker.iter()) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let end = end_of_item(tokens, at + marker.len());
        if let [.., word, name, last] = &tokens[at..end]
            && word == "mod"
            && last == ";"
        {
            files.push(name.clone());
        }
        at = end;
    }
    (kept, files)
}

/// Whether `token` is a word, and no mark.
pub(crate) fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Where the item ends that begins at `at`: after its block, or after its semicolon.
fn end_of_item(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => (),
        }
        if depth == 0 && (token == "}" || token == ";") {
            break;
        }
    }
    at
}

fn is_word(mark: char) -> bool {
    mark.is_alphanumeric() || mark == '_'
}

fn end_of_line(text: &[char], at: usize) -> usize {
    (at..text.len()).find(|&end| text[end] == '\n').unwrap_or(text.len())
}

fn end_of_comment(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        match text[at..] {
            ['/', '*', ..] => depth += 1,
            ['*', '/', ..] => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_string(text: &[char], at: usize) -> usize {
    let mut end = at + 1;
    while end < text.len() && text[end] != '"' {
        end += if text[end] == '\\' { 2 } else { 1 };
    }
    end + 1
}

/// Where a character ends, or the mark of a lifetime.
fn end_of_quote(text: &[char], at: usize) -> usize {
    match text[at + 1..] {
        ['\\', _, ..] => (at + 3..text.len()).find(|&end| text[end] == '\'').unwrap_or(text.len()) + 1,
        [_, '\'', ..] => at + 3,
        _ => at + 1,
    }
}

/// Where the raw string ends whose hashes and quotes begin at `at`; `None` where none begins.
fn end_of_raw(text: &[char], at: usize) -> Option<usize> {
    let hashes = text[at..].iter().take_while(|mark| **mark == '#').count();
    if text.get(at + hashes) != Some(&'"') {
        return None;
    }
    let ends =
        |end: &usize| text[*end] == '"' && text[end + 1..].iter().take(hashes).filter(|m| **m == '#').count() == hashes;
    Some((at + hashes + 1..text.len()).find(ends).map_or(text.len(), |end| end + 1 + hashes))
}
