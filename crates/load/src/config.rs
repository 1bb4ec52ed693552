//! What is sent where, how fast and for how long. Plain data; whoever fills it in has checked the numbers.

use policy::Span;
use sim::Spacing;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Everything a run depends on, the server aside.
#[derive(Clone, Debug)]
pub struct Config {
    /// How requests travel.
    pub protocol: Protocol,
    /// What is asked for, in the order of the report.
    pub models: Vec<ModelShare>,
    /// Requests a second over all models.
    pub rate: f64,
    /// How requests are spaced.
    pub spacing: Spacing,
    /// Sent but not counted.
    pub warmup: Span,
    /// Counted.
    pub duration: Span,
    /// An answer within this is good.
    pub objective: Span,
    /// A request without an answer is given up after this.
    pub patience: Span,
    /// Tell the server the objective, in each request's `timeout` parameter.
    pub timeout_parameter: bool,
    /// How many connections there may be.
    pub connections: Connections,
    /// The first dimension of inputs that leave it open.
    pub batch: usize,
    /// What is in the tensors.
    pub inputs: Inputs,
    /// Shapes of inputs that leave dimensions open, the batch included.
    pub shapes: Vec<Shape>,
    /// How tensors are written over HTTP.
    pub encoding: Encoding,
    /// Sent with each request.
    pub headers: Vec<(String, String)>,
    /// From which times and random inputs are drawn.
    pub seed: u64,
}

/// How requests travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with connections that are kept.
    Http(Url),
    /// gRPC, to a host and port.
    Grpc(Url),
}

/// A model and its part of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShare {
    /// What the server calls it.
    pub name: String,
    /// Its part; parts add up to 1.
    pub share: f64,
}

/// How many connections there may be. Over HTTP each carries one request at a time; over gRPC they are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// As many as there are requests under way, as far as the system allows.
    Auto,
    /// At most so many; requests beyond that wait for one, and the wait counts.
    Most(usize),
}

/// What is in the tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// Zeros, and empty strings.
    Zeros,
    /// Numbers from the seed: integers of 0 to 127, others of 0 to 1.
    Random,
    /// A request of the protocol, or a list of them to be sent in turn.
    File(PathBuf),
}

/// How tensors are written over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As raw bytes after the JSON, both ways.
    Binary,
    /// As JSON, both ways.
    Json,
}

/// The shape of an input, the batch included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What the model calls the input.
    pub input: String,
    /// Its dimensions.
    pub dimensions: Vec<usize>,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let expected = || "expected an input and its dimensions, like image:1x3x224x224".to_owned();
        // An input may have a colon in its name.
        let (input, dimensions) = text.rsplit_once(':').ok_or_else(expected)?;
        let dimension = |text: &str| text.parse::<usize>().ok().filter(|dimension| *dimension > 0);
        let dimensions: Option<Vec<usize>> = dimensions.split('x').map(dimension).collect();
        match dimensions {
            Some(dimensions) if !input.is_empty() => Ok(Shape { input: input.to_owned(), dimensions }),
            _ => Err(expected()),
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What stands before `/v2` in paths: empty, or a path that starts with a slash and does not end with one.
    pub prefix: String,
}

/// The text is not the address of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlSyntax(&'static str);

impl FromStr for Url {
    type Err = UrlSyntax;

    fn from_str(text: &str) -> Result<Url, UrlSyntax> {
        const EXPECTED: UrlSyntax = UrlSyntax("expected a URL like http://127.0.0.1:8000");
        if text.starts_with("https://") {
            return Err(UrlSyntax("https is not supported yet: expected a URL like http://127.0.0.1:8000"));
        }
        let rest = text.strip_prefix("http://").ok_or(EXPECTED)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let printable = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"<>\\".contains(&byte);
        if !rest.bytes().all(printable) {
            return Err(EXPECTED);
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(EXPECTED)?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Ok(80), |port| port.parse().map_err(|_| EXPECTED))?;
        if host.is_empty() || port == 0 {
            return Err(EXPECTED);
        }
        Ok(Url { host: host.to_owned(), port, prefix: path.trim_end_matches('/').to_owned() })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.prefix)
    }
}

impl Url {
    /// Host and port, as the `Host` header has them.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A short run without surprises.
    pub(crate) fn config(url: Url, models: &[&str]) -> Config {
        let share = 1.0 / models.len() as f64;
        let model = |name: &&str| ModelShare { name: (*name).to_owned(), share };
        Config {
            protocol: Protocol::Http(url),
            models: models.iter().map(model).collect(),
            rate: 200.0,
            spacing: Spacing::Constant,
            warmup: Span::from_millis(100),
            duration: Span::from_secs(1),
            objective: Span::from_millis(100),
            patience: Span::from_secs(5),
            timeout_parameter: false,
            connections: Connections::Auto,
            batch: 1,
            inputs: Inputs::Zeros,
            shapes: Vec::new(),
            encoding: Encoding::Binary,
            headers: Vec::new(),
            seed: 1,
        }
    }

    #[test]
    fn urls_have_a_host_a_port_and_perhaps_a_prefix() {
        let check = |text: &str, host: &str, port: u16, prefix: &str| {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.host.as_str(), url.port, url.prefix.as_str()), (host, port, prefix), "{text}");
        };
        check("http://127.0.0.1:8000", "127.0.0.1", 8000, "");
        check("http://gpu-box/", "gpu-box", 80, "");
        check("http://[::1]:8000/serving/", "::1", 8000, "/serving");
        for text in
            ["", "127.0.0.1:8000", "http://", "http://:80", "http://a:b", "http://a:0", "http://a b", "https://a"]
        {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }

    #[test]
    fn shapes_have_a_name_and_dimensions() {
        let shape: Shape = "input:0:1x2048".parse().unwrap();
        assert_eq!(shape, Shape { input: "input:0".into(), dimensions: vec![1, 2048] });
        for text in ["", "a", "a:", ":1", "a:1x", "a:0", "a:-1", "a:1x2y"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }
}
