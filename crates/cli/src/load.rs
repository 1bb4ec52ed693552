//! `weft load`: what was typed becomes a run, and what it showed a table or JSON.

mod arrivals;
mod live;
mod text;

use crate::output::{self, Misuse};
use arrivals::ArrivalKind;
use load::{Config, Connections, Encoding, Inputs, ModelShare, Protocol, Shape, Url};
use policy::Span;
use std::io::Write;
use std::path::PathBuf;
use tokio::sync::mpsc;

/// Send requests to a server at a given rate and measure how many are answered in time.
///
/// The server speaks the Open Inference Protocol, as Weft and Triton do. The load is open-loop: requests are sent at their
/// planned times whether or not earlier ones were answered, and latency counts from the planned time to the last byte of
/// the answer, so a stall counts against every request that was due meanwhile. The report says if the generator itself
/// could not keep up. Ctrl-C stops early and still reports.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// HTTP address of the server
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    url: Url,

    /// gRPC address of the server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8001", value_parser = host_and_port)]
    grpc: Url,

    /// Protocol of the requests
    #[arg(long, default_value = "http", value_parser = ["http", "grpc"])]
    protocol: String,

    /// Model, and its weight among several [default weight: 1]; may be repeated
    #[arg(long = "model", value_name = "NAME[=WEIGHT]", required = true, value_parser = model)]
    models: Vec<(String, Option<f64>)>,

    /// Requests a second over all models [default: the trace's own]
    #[arg(long, value_parser = rate, required_unless_present = "arrivals", allow_negative_numbers = true)]
    rate: Option<f64>,

    /// Arrival process: poisson, constant, gamma:SHAPE (below 1: in bursts) or trace:FILE:FORMAT, where the format is azure
    /// or per-second
    #[arg(long, value_name = "KIND", default_value = "poisson", value_parser = ArrivalKind::parse)]
    arrivals: ArrivalKind,

    /// Length of the measurement
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive)]
    duration: Span,

    /// Length of the warm-up, which does not count
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    warmup: Span,

    /// Objective: an answer within this time is good
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = positive)]
    slo: Span,

    /// Send the objective as the timeout parameter of each request
    #[arg(long)]
    timeout_parameter: bool,

    /// Time after which a request is given up
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive)]
    patience: Span,

    /// Most connections; auto: as many as needed. Over HTTP each carries one request at a time
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = connections)]
    connections: Connections,

    /// Batch: first dimension of inputs that leave it open
    #[arg(long, value_name = "N", default_value = "1", value_parser = batch, allow_negative_numbers = true)]
    batch: usize,

    /// Shape of an input that leaves dimensions open, batch included, like image:1x3x224x224 [default: 1 for each];
    /// may be repeated
    #[arg(long = "shape", value_name = "INPUT:SHAPE")]
    shapes: Vec<Shape>,

    /// Content of the input tensors: zeros, random, or a JSON file with a request of the protocol or a list of them
    #[arg(long, value_name = "zeros|random|FILE", default_value = "zeros", value_parser = inputs)]
    inputs: Inputs,

    /// Send and receive tensors as raw bytes, with the protocol's binary extension (the default)
    #[arg(long, conflicts_with = "json_tensors")]
    binary: bool,

    /// Send and receive tensors as JSON, over HTTP
    #[arg(long)]
    json_tensors: bool,

    /// Header that is sent with each request; may be repeated
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// Key that is sent with each request as a bearer token [default: none]
    #[arg(long, value_name = "KEY", value_parser = header_value)]
    api_key: Option<String>,

    /// Seed of arrival times and random inputs
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// Print everything as JSON, with figures by model
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft load --model magika --rate 200 --slo 100ms --shape bytes:1x2048
  weft load --model resnet50=3 --model bert --rate 500 --arrivals gamma:0.5 --duration 60s
  weft load --model magika --arrivals trace:examples/07-replay-a-trace/rates.txt --inputs random
  weft load --model magika --rate 200 --protocol grpc --timeout-parameter
  weft load --url http://gpu-box:8000 --model magika --rate 200 --json | jq .good_rps";

pub(crate) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let config = config(arguments)?;
    let (tell, stop) = mpsc::unbounded_channel();
    live::tell_on_interrupt(tell)?;
    let line = live::Line::new(config.warmup + config.duration);
    let watched = line.clone();
    let report = load::run(&config, move |moment| watched.show(moment), stop);
    line.clear();
    let report = report.map_err(|error| Misuse(error.to_string()))?;
    let (alarm, answered) = (text::alarm(&report), report.good + report.late > 0);
    if let Some(text) = alarm.as_ref().filter(|_| answered) {
        // Before the report, which whoever reads both ends with.
        let _ = writeln!(std::io::stderr(), "weft: {text}");
    }
    match arguments.json {
        true => output::print_json(&report),
        false => output::print(&text::report(&report)),
    }?;
    // Where nothing was answered, nothing was measured.
    alarm
        .filter(|_| !answered)
        .map_or(Ok(()), |text| Err(output::Exit { code: 1, text: format!("get an answer: {text}") }.into()))
}

fn config(arguments: &Arguments) -> Result<Config, Misuse> {
    let typed = &arguments.models;
    if let Some((index, (name, _))) =
        typed.iter().enumerate().find(|(index, (name, _))| typed[..*index].iter().any(|(other, _)| other == name))
    {
        return Err(Misuse(format!("read --model number {}: `{name}` was given before", index + 1)));
    }
    let planned = arguments.arrivals.plan(typed, arguments.rate)?;
    let models = typed.iter().zip(planned.shares).map(|((name, _), share)| ModelShare { name: name.clone(), share });
    let key = arguments.api_key.iter().map(|key| ("Authorization".to_owned(), format!("Bearer {key}")));
    Ok(Config {
        protocol: match arguments.protocol == "grpc" {
            true => Protocol::Grpc(arguments.grpc.clone()),
            false => Protocol::Http(arguments.url.clone()),
        },
        models: models.collect(),
        rate: planned.rate,
        spacing: planned.spacing,
        warmup: arguments.warmup,
        duration: arguments.duration,
        objective: arguments.slo,
        patience: arguments.patience,
        timeout_parameter: arguments.timeout_parameter,
        connections: arguments.connections,
        batch: arguments.batch,
        inputs: arguments.inputs.clone(),
        shapes: arguments.shapes.clone(),
        encoding: if arguments.json_tensors { Encoding::Json } else { Encoding::Binary },
        headers: arguments.headers.iter().cloned().chain(key).collect(),
        seed: arguments.seed,
    })
}

fn host_and_port(text: &str) -> Result<Url, String> {
    let url: Option<Url> = format!("http://{text}").parse().ok();
    // A colon after the last bracket is the port's.
    let has_port = text.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    let url = url.filter(|url| has_port && url.prefix.is_empty() && !text.ends_with('/'));
    url.ok_or_else(|| "expected a host and port like 127.0.0.1:8001".into())
}

fn model(text: &str) -> Result<(String, Option<f64>), String> {
    let (name, weight) = match text.rsplit_once('=') {
        None => (text, None),
        Some((name, weight)) => {
            let weight = weight.parse().ok().filter(|weight| (1e-6..=1e6).contains(weight));
            (name, Some(weight.ok_or("expected a weight of 0.000001 to 1000000 after the =")?))
        }
    };
    match name {
        "" => Err("expected the name of a model".into()),
        name => Ok((name.to_owned(), weight)),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| sim::RATES.contains(rate));
    rate.ok_or_else(|| format!("expected a number from {} to {}", sim::RATES.start(), sim::RATES.end()))
}

/// A day is longer than any run.
const TIME_MAX: Span = Span::from_secs(24 * 3600);

fn time(text: &str) -> Result<Span, String> {
    match text.parse() {
        Ok(time) if time <= TIME_MAX => Ok(time),
        Ok(_) => Err("expected at most 24h".into()),
        Err(error) => Err(format!("{error}")),
    }
}

fn positive(text: &str) -> Result<Span, String> {
    match time(text)? {
        Span::ZERO => Err("expected more than nothing".into()),
        time => Ok(time),
    }
}

fn connections(text: &str) -> Result<Connections, String> {
    match text {
        "auto" => Ok(Connections::Auto),
        number => match number.parse() {
            Ok(number) if (1..=1_000_000).contains(&number) => Ok(Connections::Most(number)),
            _ => Err("expected auto or a whole number from 1 to 1000000".into()),
        },
    }
}

fn batch(text: &str) -> Result<usize, String> {
    let batch = text.parse().ok().filter(|batch| (1..=1_000_000).contains(batch));
    batch.ok_or_else(|| "expected a whole number from 1 to 1000000".into())
}

fn inputs(text: &str) -> Result<Inputs, String> {
    match text {
        "zeros" => Ok(Inputs::Zeros),
        "random" => Ok(Inputs::Random),
        "" => Err("expected zeros, random or a JSON file".into()),
        path => Ok(Inputs::File(PathBuf::from(path))),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let expected = || "expected a header like X-Tenant:red".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(expected)?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(expected());
    }
    // These say where a request ends, which is not for a header from outside to say.
    if ["content-length", "transfer-encoding", "connection", "host"].contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} is set by weft itself"));
    }
    Ok((name.to_owned(), header_value(value.trim())?))
}

fn header_value(text: &str) -> Result<String, String> {
    match text.bytes().all(|byte| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err("expected printable ASCII in a header".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_may_have_a_weight() {
        assert_eq!(model("a"), Ok(("a".into(), None)));
        assert_eq!(model("a=b=2.5"), Ok(("a=b".into(), Some(2.5))));
        for text in ["", "=2", "a=", "a=0", "a=-1", "a=nan", "a=x"] {
            assert!(model(text).is_err(), "{text}");
        }
    }

    #[test]
    fn grpc_has_a_host_and_a_port() {
        assert_eq!(host_and_port("[::1]:8001").map(|url| url.authority()), Ok("[::1]:8001".into()));
        for text in ["", "a", "[::1]", "http://a:1", "a:1/", "a:1/b", "a:x"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn headers_cannot_change_where_a_request_ends() {
        assert_eq!(header("X-Tenant: red "), Ok(("X-Tenant".into(), "red".into())));
        for text in ["", "a", ":b", "a b:c", "Content-Length:5", "transfer-encoding:chunked", "a:b\r\nc:d"] {
            assert!(header(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_counts_are_checked() {
        assert_eq!((time("0s"), positive("5ms")), (Ok(Span::ZERO), Ok(Span::from_millis(5))));
        assert!(positive("0s").is_err() && time("25h").is_err() && time("5").is_err());
        assert_eq!((connections("auto"), connections("4")), (Ok(Connections::Auto), Ok(Connections::Most(4))));
        assert!(connections("0").is_err() && batch("0").is_err() && batch("-1").is_err());
        assert_eq!(inputs("x.json"), Ok(Inputs::File("x.json".into())));
    }
}
