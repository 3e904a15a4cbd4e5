//! HTTP/2 as a sequence of frames, as far as their headers say: where one ends, and what it costs to handle.

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) n_payload: u32,
    pub(super) stream: u32,
}

/// Follows a direction of a connection from its first frame on, however the bytes are cut.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; HEADER],
    n_header: u8,
    /// Bytes of the payload that are to come.
    n_payload: u32,
}

impl Frames {
    /// Takes in what comes next, and calls `seen` for each frame that begins in it.
    pub(super) fn follow(&mut self, mut data: &[u8], mut seen: impl FnMut(Header)) {
        loop {
            let n_skipped = data.len().min(self.n_payload as usize);
            self.n_payload -= n_skipped as u32;
            data = &data[n_skipped..];
            if data.is_empty() {
                return;
            }
            let begun = usize::from(self.n_header);
            let n_taken = data.len().min(HEADER - begun);
            self.header[begun..begun + n_taken].copy_from_slice(&data[..n_taken]);
            data = &data[n_taken..];
            self.n_header += n_taken as u8;
            if usize::from(self.n_header) < HEADER {
                return;
            }
            let [a, b, c, kind, flags, s0, s1, s2, s3] = self.header;
            let n_payload = u32::from_be_bytes([0, a, b, c]);
            (self.n_header, self.n_payload) = (0, n_payload);
            let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
            seen(Header { kind, flags, n_payload, stream });
        }
    }

    /// Returns `true` if the last frame is complete, so that another one may be put here.
    pub(super) fn is_between(&self) -> bool {
        self.n_header == 0 && self.n_payload == 0
    }
}

impl Header {
    /// Returns `true` if the frame makes work without carrying anything. The number of these frames is limited.
    ///
    /// Frames that open a stream or carry data are limited elsewhere, and real clients send thousands at once.
    pub(super) fn is_control(self) -> bool {
        match self.kind {
            DATA => self.n_payload == 0 && self.flags & END_STREAM == 0,
            HEADERS => false,
            _ => true,
        }
    }
}

/// `GOAWAY` with `NO_ERROR`: what is open goes on, and nothing new is opened.
pub(super) const CONNECT_AGAIN: [u8; 17] =
    [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// `GOAWAY` with `ENHANCE_YOUR_CALM`, after stream `last`.
pub(super) fn calm_down(last: u32) -> Vec<u8> {
    let debug = b"too many control frames";
    let n_payload = (8 + debug.len() as u32).to_be_bytes();
    let header = [n_payload[1], n_payload[2], n_payload[3], GOAWAY, 0, 0, 0, 0, 0];
    [&header[..], &last.to_be_bytes(), &ENHANCE_YOUR_CALM.to_be_bytes(), debug].concat()
}

/// The header of a frame: length, kind, flags, stream.
const HEADER: usize = 9;
const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, n_payload: usize) -> Vec<u8> {
        let n = (n_payload as u32).to_be_bytes();
        let s = stream.to_be_bytes();
        let mut frame = vec![n[1], n[2], n[3], kind, flags, s[0], s[1], s[2], s[3]];
        frame.resize(HEADER + n_payload, 0xff);
        frame
    }

    fn headers(data: &[u8]) -> (Vec<Header>, bool) {
        let (mut frames, mut seen) = (Frames::default(), Vec::new());
        frames.follow(data, |header| seen.push(header));
        (seen, frames.is_between())
    }

    #[test]
    fn what_only_makes_work_is_a_control_frame() {
        for (kind, flags, n_payload, is_control) in [
            (DATA, 0, 0, true),
            (DATA, END_STREAM, 0, false),
            (DATA, 0, 1, false),
            (HEADERS, 0, 10, false),
            (2, 0, 5, true),
            (3, 0, 4, true),
            (4, 0, 0, true),
            (6, 0, 8, true),
            (8, 0, 4, true),
            (9, 0, 0, true),
            (0xfa, 0, 0, true),
        ] {
            assert_eq!(Header { kind, flags, n_payload, stream: 1 }.is_control(), is_control, "{kind}");
        }
    }

    #[test]
    fn a_goaway_is_one_frame() {
        let (seen, is_between) = headers(&calm_down(7));
        assert_eq!(seen, [Header { kind: GOAWAY, flags: 0, n_payload: 31, stream: 0 }]);
        assert!(is_between);
        let (seen, is_between) = headers(&CONNECT_AGAIN);
        assert_eq!(seen, [Header { kind: GOAWAY, flags: 0, n_payload: 8, stream: 0 }]);
        assert!(is_between);
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_they_are_cut(
            sizes in proptest::collection::vec((0..12_u8, 0..40_usize), 0..20),
            cuts in proptest::collection::vec(1..30_usize, 1..20),
        ) {
            let wire: Vec<u8> =
                sizes.iter().enumerate().flat_map(|(i, (kind, n))| frame(*kind, 1, i as u32, *n)).collect();
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            let mut rest = &wire[..];
            for n in cuts.iter().cycle() {
                let (head, tail) = rest.split_at((*n).min(rest.len()));
                frames.follow(head, |header| seen.push(header));
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(frames.is_between());
            let found: Vec<_> = seen.iter().map(|h| (h.kind, h.n_payload as usize)).collect();
            prop_assert_eq!(found, sizes);
            prop_assert!(seen.iter().enumerate().all(|(i, h)| h.stream == i as u32));
        }
    }
}
