//! Whether a request comes from where it seems to come from. A browser sends whatever a page of a stranger tells it to
//! send, to this machine too, and says in its headers on whose behalf.
//!
//! Two things are asked of a request that may change the server:
//!
//! - Its `Host` is an IP address, `localhost` or a name that the server was told to go by. A page whose name was made to
//!   point at this machine (DNS rebinding) sends its own name.
//! - Its `Origin`, where it has one, is the server itself, and so is what `Sec-Fetch-Site` says.
//!
//! Clients that are no browsers send a `Host` and nothing else of these. This is no replacement for a key: whoever is no
//! browser sends any header it likes.

use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::{Request, Uri};
use std::net::{IpAddr, Ipv6Addr};

/// The names that a server goes by, besides its addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// A server with these names.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Hosts {
        let lower = |name: String| name.trim_end_matches('.').to_ascii_lowercase();
        Hosts { names: names.into_iter().map(Into::into).map(lower).collect() }
    }

    /// Whether a request is for this server, and not on behalf of another site. If not, why; it is logged here.
    pub fn check<Body>(&self, request: &Request<Body>) -> Result<(), String> {
        self.check_parts(request.uri(), request.headers())
    }

    /// Whether a request is for this server, whoever it is from: for what everybody may look at.
    pub(crate) fn check_name<Body>(&self, request: &Request<Body>) -> Result<(), String> {
        let host = request.headers().get(HOST).cloned();
        self.check_parts(request.uri(), &HeaderMap::from_iter(host.map(|host| (HOST, host))))
    }

    /// The same, of the parts that matter.
    pub(crate) fn check_parts(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let checked = self.judge(uri, headers);
        if let Err(why) = &checked {
            tracing::warn!(path = uri.path(), host = ?headers.get(HOST), origin = ?headers.get(ORIGIN), "refused: {why}");
        }
        checked
    }

    fn judge(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("something unreadable"));
        let twice = |name: &str| headers.get_all(name).iter().count() > 1;
        if [HOST.as_str(), ORIGIN.as_str(), "sec-fetch-site"].into_iter().any(twice) {
            return Err("the request has more than one `Host`, `Origin` or `Sec-Fetch-Site`".into());
        }
        // HTTP/2 has no `Host`; who names one in both places means the same.
        let named = [uri.authority().map(|authority| authority.as_str()), text(HOST.as_str())];
        let host = named[0].or(named[1]);
        if let Some(host) = named.into_iter().flatten().find(|host| !self.is_own(host)) {
            let how = "add it to `hosts` under [listen] if it is this server's name";
            return Err(format!("the request is for `{}`; {how}", host.escape_debug()));
        }
        if let Some(origin) = text(ORIGIN.as_str()) {
            let site = origin.split_once("://").map(|(_, site)| site);
            if site.is_none() || !host.is_some_and(|host| site.is_some_and(|site| site.eq_ignore_ascii_case(host))) {
                return Err(format!("the request comes from a page of `{}`", origin.escape_debug()));
            }
        }
        match text("sec-fetch-site") {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) => Err("the request comes from a page of another site".into()),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let name = without_port(host).trim_end_matches('.').to_ascii_lowercase();
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_address = match bare {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => name.parse::<IpAddr>().is_ok(),
        };
        is_address || name == "localhost" || self.names.contains(&name)
    }
}

/// A host without the port that may follow it.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(uri: &str, headers: &[(&'static str, &str)]) -> Result<(), String> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Hosts::new(["gpu-7.example"]).judge(&uri.parse().unwrap(), &HeaderMap::from_iter(headers))
    }

    #[test]
    fn a_host_is_an_address_or_a_known_name() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8002",
            "[::1]:8002",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "10.1.2.3:80",
            "gpu-7.example",
            "GPU-7.example:8002",
            "gpu-7.example.:8002",
        ] {
            assert_eq!(judged("/admin/models", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8002",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "xgpu-7.example",
            "",
            "[evil]",
            "127.0.0.1@evil.example",
            "localhost:80@evil.example",
        ] {
            let message = judged("/admin/models", &[("host", host)]).unwrap_err();
            assert!(message.contains("`hosts` under [listen]"), "{host}: {message}");
        }
        // HTTP/2, and HTTP/1.0 without either.
        assert!(judged("http://evil.example/admin/models", &[]).is_err());
        assert!(judged("http://localhost/metrics", &[("host", "evil.example")]).is_err());
        assert_eq!(judged("http://127.0.0.1:8000/v2", &[]), Ok(()));
        assert_eq!(judged("/admin/models", &[]), Ok(()));
    }

    #[test]
    fn an_origin_is_the_server_itself() {
        let from = |origin: &str| judged("/", &[("host", "127.0.0.1:8002"), ("origin", origin)]);
        assert_eq!(from("http://127.0.0.1:8002"), Ok(()));
        assert_eq!(from("https://127.0.0.1:8002"), Ok(()));
        for origin in ["null", "", "http://127.0.0.1:8000", "http://127.0.0.1", "http://evil.example", "127.0.0.1:8002"]
        {
            assert!(from(origin).unwrap_err().contains("comes from a page of"), "{origin}");
        }
        let site = |site: &str| judged("/", &[("host", "127.0.0.1:8002"), ("sec-fetch-site", site)]);
        assert!(site("same-origin").is_ok() && site("none").is_ok());
        assert!(judged("/", &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]).is_err());
        assert!(site("cross-site").is_err() && site("same-site").is_err());
        assert!(judged("/", &[("origin", "http://127.0.0.1")]).is_err(), "no host to compare with");
        assert!(judged("/", &[("host", "127.0.0.1"), ("host", "localhost")]).is_err());
    }
}
