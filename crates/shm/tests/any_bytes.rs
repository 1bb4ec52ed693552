//! Messages and pages made of any bytes: they are values or refused, and nothing breaks.

use proptest::prelude::*;

#[path = "../../../fuzz/src/sharing.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
mod sharing;

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn any_packet_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        sharing::message(&bytes);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn a_damaged_packet_is_read_or_refused(at in 0usize..200, byte in any::<u8>(), cut in 0usize..200, kind in 0usize..6) {
        let mut buffer = [0; 256];
        let message = [
            shm::Message::Hello { pid: 1, tenant: shm::Name::new("trainer"), flags: 0 },
            shm::Message::Attach { gpu: [7; 16], used_bytes: 1, charged_ns: 2 },
            shm::Message::Attached { slot: 1, slots: 64, generation: 3, tenant: 4 },
            shm::Message::Refused { version: 1, text: "no" },
            shm::Message::Request { text: "{}" },
            shm::Message::Reply { text: "{}" },
        ][kind];
        let mut packet = message.encode(&mut buffer).unwrap().to_vec();
        prop_assert_eq!(shm::Message::decode(&packet), Ok(message));
        if let Some(place) = packet.get_mut(at) {
            *place = byte;
        }
        packet.truncate(packet.len().saturating_sub(cut));
        sharing::message(&packet);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn any_page_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), shm::PAGE_BYTES)) {
        sharing::page(&bytes);
    }
}

#[test]
fn a_page_that_says_it_is_one_is_clamped() {
    let mut bytes = vec![0xff; shm::PAGE_BYTES];
    bytes[..8].copy_from_slice(&[b'W', b'E', b'F', b'T', 1, 0, 0, 0]);
    sharing::page(&bytes);
    bytes[12..16].copy_from_slice(&3u32.to_le_bytes());
    bytes[32..36].copy_from_slice(&1u32.to_le_bytes());
    sharing::page(&bytes);
}

#[test]
fn refusals_are_understood_across_versions() {
    let mut buffer = [0; 256];
    let refusal = shm::Message::Refused { version: 9, text: "speak version 9" };
    refusal.encode(&mut buffer).unwrap();
    buffer[4] = 9;
    assert_eq!(shm::Message::decode(&buffer[..16 + 4 + 15]), Ok(refusal));
    shm::Message::Request { text: "{}" }.encode(&mut buffer).unwrap();
    buffer[4] = 9;
    assert_eq!(shm::Message::decode(&buffer[..18]), Err(shm::DecodeError::Version(9)));
    assert_eq!(shm::message_version(&buffer), Some(9));
}

#[test]
fn names_are_short_and_printable() {
    for bad in ["", "a\nb", "\0", &"x".repeat(65)] {
        assert_eq!(shm::Name::new(bad), None, "{bad:?}");
    }
    assert_eq!(shm::Name::new("übung 1").unwrap().as_str(), "übung 1");
}
