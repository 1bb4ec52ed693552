//! API keys. Only their SHA-256 is kept.

use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::digest::{SHA256, digest};
use std::fmt;

/// Who may change the server over the ports that serve models: load and unload, register shared memory, change settings.
/// The same over HTTP and gRPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Administration {
    /// Whoever brings an admin key; nobody where there is none.
    #[default]
    Key,
    /// Whoever may ask models.
    Open,
    /// Nobody.
    Off,
}

/// What a client without leave to change the server is told.
pub(crate) const ADMIN_KEY_NEEDED: &str = "this call changes the server and needs the admin key, as `Authorization: \
    Bearer KEY`; it is in the file `admin.key` of the state folder, or set by `admin` under [keys]";
pub(crate) const ADMINISTRATION_OFF: &str =
    "calls that change the server are off on this port; set `administration` under [server] to allow them";

/// The keys that open a door.
#[derive(Clone, Default)]
pub struct Keys {
    hashes: Vec<[u8; 32]>,
}

impl Keys {
    /// Keys by their hashes, each as 64 hexadecimal digits. Fails with the one that is not.
    pub fn from_hashes<'a>(hashes: impl IntoIterator<Item = &'a str>) -> Result<Keys, String> {
        let hashes = hashes.into_iter().map(|text| parse(text).ok_or_else(|| text.to_string()));
        Ok(Keys { hashes: hashes.collect::<Result<_, _>>()? })
    }

    /// What is kept of a key: 64 hexadecimal digits.
    pub fn hash(key: &str) -> String {
        digest(&SHA256, key.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a key opens the door. Takes as long for any key of one length.
    pub fn allows(&self, key: &str) -> bool {
        let hash = digest(&SHA256, key.as_bytes());
        let same = |known: &[u8; 32]| {
            let difference = known.iter().zip(hash.as_ref()).fold(0, |all, (left, right)| all | (left ^ right));
            u8::from(std::hint::black_box(difference) == 0)
        };
        self.hashes.iter().fold(0, |found, known| found | same(known)) == 1
    }

    /// Whether a request brings a key that opens the door: `Authorization: Bearer KEY` or `x-api-key: KEY`.
    pub fn admit(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        let own = headers.get("x-api-key").and_then(|value| value.to_str().ok());
        bearer.or(own).is_some_and(|key| self.allows(key))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.hashes.len())
    }
}

fn parse(text: &str) -> Option<[u8; 32]> {
    let digits = text.trim().as_bytes();
    let mut hash = [0; 32];
    for (place, byte) in hash.iter_mut().enumerate() {
        let pair = std::str::from_utf8(digits.get(2 * place..2 * place + 2)?).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    (digits.len() == 64).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_keys_are_allowed() {
        let hash = Keys::hash("abc");
        assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let keys = Keys::from_hashes([hash.as_str(), &Keys::hash("other")]).unwrap();
        assert!(keys.allows("abc") && keys.allows("other"));
        assert!(!keys.allows("") && !keys.allows("ab") && !keys.allows(&hash) && !Keys::default().allows(""));
        assert_eq!(Keys::from_hashes(["12"]).unwrap_err(), "12");
        assert_eq!(format!("{keys:?}"), "2 keys");
    }

    #[test]
    fn keys_come_in_either_header() {
        let keys = Keys::from_hashes([Keys::hash("abc").as_str()]).unwrap();
        let check = |name: &'static str, value: &str| {
            keys.admit(&HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]))
        };
        assert!(check("authorization", "Bearer abc") && check("authorization", "bearer abc"));
        assert!(check("x-api-key", "abc"));
        assert!(!check("authorization", "Basic abc") && !check("authorization", "abc") && !check("x-api-key", "x"));
    }
}
