//! The trace of a caller.

use std::str::FromStr;

/// The span of a caller that a change becomes a part of: the header `traceparent`.
///
/// See [Trace Context][spec].
///
/// [spec]: https://www.w3.org/TR/trace-context/#traceparent-header
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The caller's trace; not all zero.
    pub trace_id: [u8; 16],
    /// The caller's span; not all zero.
    pub span_id: [u8; 8],
    /// True if the caller may have recorded its span.
    pub is_sampled: bool,
}

/// The text is no `traceparent`. The specification says to begin a new trace then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTraceParent;

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    /// Reads `00-{trace id}-{span id}-{flags}`, and of later versions the part that they have in common with this one.
    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        let mut fields = text.splitn(5, '-');
        let mut next = || fields.next().ok_or(NoTraceParent);
        let [version] = bytes(next()?)?;
        let (trace_id, span_id) = (bytes(next()?)?, bytes(next()?)?);
        let [flags] = bytes(next()?)?;
        let has_more = fields.next().is_some();
        if version == FORBIDDEN || (version == 0 && has_more) || trace_id == [0; 16] || span_id == [0; 8] {
            return Err(NoTraceParent);
        }
        Ok(Self { trace_id, span_id, is_sampled: flags & SAMPLED != 0 })
    }
}

/// Bytes in lower-case hexadecimal digits, two each.
fn bytes<const N: usize>(text: &str) -> Result<[u8; N], NoTraceParent> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(NoTraceParent),
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.len() != N {
        return Err(NoTraceParent);
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Ok(bytes)
}

/// A version that no header may have.
const FORBIDDEN: u8 = 0xff;
/// The flag of a caller that may have recorded its span.
const SAMPLED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_a_trace_and_a_span() {
        let trace_id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
        let span_id = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes();
        for (header, is_sampled) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe", false),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", true),
        ] {
            assert_eq!(header.parse(), Ok(TraceParent { trace_id, span_id, is_sampled }), "{header}");
        }
    }

    #[test]
    fn everything_else_names_none() {
        for header in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-äääääääääääääääa-00f067aa0ba902b7-01",
        ] {
            assert_eq!(header.parse::<TraceParent>(), Err(NoTraceParent), "{header}");
        }
    }
}
