//! The five compressions of Kafka and their framing. Decompression is bounded: it never holds more than the cap, and
//! it allocates as output comes, not as a header promises. The one fixed cost beyond that is a codec's own buffers
//! (LZ4 up to 12 MiB for the largest block size, Zstandard up to its window, at most 8 MiB or the cap).

use std::fmt;
use std::io::{Read, Write};

use super::RecordError;

/// How the records of a batch are compressed (`compression.type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Not compressed; the default.
    #[default]
    None,
    /// Gzip.
    Gzip,
    /// Snappy: written in the framing of snappy-java, as Kafka's own clients do; read with and without it.
    Snappy,
    /// LZ4, the standard frame.
    Lz4,
    /// Zstandard (KIP-110).
    Zstd,
}

/// Output starts with room for this many times the input, within the cap, and grows as more comes.
const FIRST_CAPACITY_FACTOR: usize = 4;
/// A Snappy element of three bytes copies at most 64 bytes, so no honest block promises more than this factor.
const SNAPPY_MAX_FACTOR: usize = 24;
/// Encoders use windows up to this size at their usual levels.
const ZSTD_USUAL_WINDOW: usize = 8 << 20;
/// Block size of the framing, as snappy-java writes it by default.
const XERIAL_BLOCK: usize = 32 << 10;
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic, version and compatible version.
const XERIAL_HEADER_LEN: usize = 16;

impl Compression {
    /// Every compression, in the order of their numbers.
    pub const ALL: &'static [Compression] =
        &[Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    /// The compression of this number.
    ///
    /// # Errors
    /// [`RecordError::UnknownCompression`] if Kafka does not define it.
    pub fn from_bits(bits: i16) -> Result<Self, RecordError> {
        match bits {
            0 => Ok(Compression::None),
            1 => Ok(Compression::Gzip),
            2 => Ok(Compression::Snappy),
            3 => Ok(Compression::Lz4),
            4 => Ok(Compression::Zstd),
            other => Err(RecordError::UnknownCompression(other)),
        }
    }

    /// The number in a batch's attributes.
    pub fn bits(self) -> i16 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// The name that Kafka's `compression.type` uses.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// The compression that `compression.type` names so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|compression| compression.name() == name)
    }

    /// Compresses `input`.
    ///
    /// # Errors
    /// [`RecordError::Compress`] if the codec fails.
    pub fn compress(self, input: &[u8]) -> Result<Vec<u8>, RecordError> {
        let failed =
            |error: &dyn fmt::Display| RecordError::Compress { codec: self, reason: error.to_string() };
        match self {
            Compression::None => Ok(input.to_vec()),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(input).map_err(|error| failed(&error))?;
                encoder.finish().map_err(|error| failed(&error))
            }
            Compression::Snappy => compress_xerial(input).map_err(|error| failed(&error)),
            Compression::Lz4 => {
                // Java reads independent blocks only, which is this crate's default.
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max64KB)
                    .block_mode(lz4_flex::frame::BlockMode::Independent);
                let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(input).map_err(|error| failed(&error))?;
                encoder.finish().map_err(|error| failed(&error))
            }
            Compression::Zstd => {
                Ok(ruzstd::encoding::compress_to_vec(input, ruzstd::encoding::CompressionLevel::Fastest))
            }
        }
    }

    /// Decompresses `input` to at most `max` bytes.
    ///
    /// # Errors
    /// [`RecordError::Decompress`] if the codec cannot read it, [`RecordError::DecompressedTooLarge`] if it is, or
    /// claims to be, more than `max` bytes.
    pub fn decompress(self, input: &[u8], max: usize) -> Result<Vec<u8>, RecordError> {
        match self {
            Compression::None if input.len() > max => {
                Err(RecordError::DecompressedTooLarge { codec: self, max })
            }
            Compression::None => Ok(input.to_vec()),
            Compression::Gzip => self.read_all(flate2::read::MultiGzDecoder::new(input), input.len(), max),
            Compression::Snappy => self.decompress_snappy(input, max),
            Compression::Lz4 => self.read_all(lz4_flex::frame::FrameDecoder::new(input), input.len(), max),
            Compression::Zstd => {
                let window = max.max(ZSTD_USUAL_WINDOW) as u64;
                let decoder = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(input, window);
                self.read_all(decoder.map_err(|error| self.unreadable(&error))?, input.len(), max)
            }
        }
    }

    fn unreadable(self, reason: &dyn fmt::Display) -> RecordError {
        RecordError::Decompress { codec: self, reason: reason.to_string() }
    }

    fn read_all(self, source: impl Read, input_len: usize, max: usize) -> Result<Vec<u8>, RecordError> {
        let mut output = Vec::with_capacity(input_len.saturating_mul(FIRST_CAPACITY_FACTOR).min(max));
        let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        let read = source.take(limit).read_to_end(&mut output);
        if output.len() > max {
            return Err(RecordError::DecompressedTooLarge { codec: self, max });
        }
        read.map_err(|error| self.unreadable(&error))?;
        Ok(output)
    }

    fn decompress_snappy(self, input: &[u8], max: usize) -> Result<Vec<u8>, RecordError> {
        let mut output = Vec::new();
        if !input.starts_with(&XERIAL_MAGIC) {
            self.append_snappy_block(input, &mut output, max)?;
            return Ok(output);
        }
        let mut rest = input;
        while !rest.is_empty() {
            // Streams may be concatenated, each with its own header.
            if rest.starts_with(&XERIAL_MAGIC) {
                let header = rest.split_at_checked(XERIAL_HEADER_LEN);
                rest = header.ok_or_else(|| self.unreadable(&"the framing's header is cut off"))?.1;
                continue;
            }
            let length = rest.split_first_chunk::<4>();
            let (length, behind) = length.ok_or_else(|| self.unreadable(&"a block's length is cut off"))?;
            let length = usize::try_from(i32::from_be_bytes(*length));
            let length = length.map_err(|_| self.unreadable(&"a block's length is negative"))?;
            let block = behind.split_at_checked(length);
            let (block, behind) = block.ok_or_else(|| self.unreadable(&"a block is longer than the data"))?;
            self.append_snappy_block(block, &mut output, max)?;
            rest = behind;
        }
        Ok(output)
    }

    fn append_snappy_block(self, block: &[u8], output: &mut Vec<u8>, max: usize) -> Result<(), RecordError> {
        let promised = snap::raw::decompress_len(block).map_err(|error| self.unreadable(&error))?;
        let start = output.len();
        let end = match start.checked_add(promised) {
            Some(end) if end <= max => end,
            _ => return Err(RecordError::DecompressedTooLarge { codec: self, max }),
        };
        if promised > block.len().saturating_mul(SNAPPY_MAX_FACTOR) {
            return Err(self.unreadable(&"a block promises more than it can hold"));
        }
        output.resize(end, 0);
        let place = output.get_mut(start..end).unwrap_or_default();
        let written = snap::raw::Decoder::new().decompress(block, place);
        let written = written.map_err(|error| self.unreadable(&error))?;
        output.truncate(start.saturating_add(written));
        Ok(())
    }
}

/// The name that Kafka's `compression.type` uses.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn compress_xerial(input: &[u8]) -> Result<Vec<u8>, snap::Error> {
    let mut encoder = snap::raw::Encoder::new();
    let mut output = Vec::with_capacity(XERIAL_HEADER_LEN.saturating_add(input.len() / 2));
    output.extend_from_slice(&XERIAL_MAGIC);
    output.extend_from_slice(&1i32.to_be_bytes());
    output.extend_from_slice(&1i32.to_be_bytes());
    for block in input.chunks(XERIAL_BLOCK) {
        let compressed = encoder.compress_vec(block)?;
        // A block of 32 KiB compresses to well below 4 GiB.
        output.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
        output.extend_from_slice(&compressed);
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Compression; 4] =
        [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    fn sample(length: usize) -> Vec<u8> {
        let mut state = 7u32;
        (0..length)
            .map(|index| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if index % 5 == 0 { (state >> 24) as u8 } else { b'a' + (index % 17) as u8 }
            })
            .collect()
    }

    #[test]
    fn every_codec_round_trips() {
        for codec in Compression::ALL {
            assert_eq!(Compression::from_name(codec.name()), Some(*codec));
            assert_eq!(Compression::from_bits(codec.bits()), Ok(*codec));
            for length in [0, 1, 100, 32 << 10, 200_000] {
                let input = sample(length);
                let compressed = codec.compress(&input).unwrap();
                assert_eq!(codec.decompress(&compressed, length).unwrap(), input, "{codec} {length}");
            }
        }
        assert_eq!(Compression::from_bits(5), Err(RecordError::UnknownCompression(5)));
    }

    #[test]
    fn a_bomb_is_refused_by_every_codec() {
        let zeros = vec![0u8; 4 << 20];
        for codec in CODECS {
            let bomb = codec.compress(&zeros).unwrap();
            let error = codec.decompress(&bomb, 1 << 20).unwrap_err();
            assert_eq!(error, RecordError::DecompressedTooLarge { codec, max: 1 << 20 });
        }
    }

    #[test]
    fn cut_off_and_damaged_input_is_an_error_or_ends() {
        let input = sample(20_000);
        for codec in CODECS {
            let compressed = codec.compress(&input).unwrap();
            for cut in (0..compressed.len()).step_by(compressed.len() / 50 + 1) {
                if let Ok(output) = codec.decompress(&compressed[..cut], 1 << 20) {
                    assert_ne!(output, input, "{codec}");
                }
            }
            for at in (0..compressed.len()).step_by(compressed.len() / 200 + 1) {
                let mut damaged = compressed.clone();
                damaged[at] ^= 0x41;
                let _ = codec.decompress(&damaged, 1 << 20);
            }
        }
    }

    #[test]
    fn raw_snappy_is_read_too() {
        let input = sample(50_000);
        let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
        assert_eq!(Compression::Snappy.decompress(&raw, 50_000).unwrap(), input);
    }

    #[test]
    fn lies_about_snappy_lengths_are_refused() {
        let mut framed = Compression::Snappy.compress(&sample(1000)).unwrap();
        for lie in [[0x7f, 0xff, 0xff, 0xff], [0xff, 0xff, 0xff, 0xff], [0, 0, 0xff, 0xff]] {
            framed[16..20].copy_from_slice(&lie);
            let error = Compression::Snappy.decompress(&framed, 1 << 20).unwrap_err();
            assert!(matches!(error, RecordError::Decompress { .. }), "{error}");
        }
        assert!(Compression::Snappy.decompress(&framed[..12], 1 << 20).is_err());
        // A block of five bytes that promises 4 GiB, and one that promises half the cap.
        let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
        let error = Compression::Snappy.decompress(&huge, 1 << 20).unwrap_err();
        assert!(matches!(error, RecordError::DecompressedTooLarge { .. }), "{error}");
        let half = [0x80, 0x80, 0x20, 0, b'a'];
        let error = Compression::Snappy.decompress(&half, 1 << 20).unwrap_err();
        assert!(matches!(error, RecordError::Decompress { .. }), "{error}");
    }

    #[test]
    fn an_oversized_zstd_window_is_refused() {
        // Magic, no single segment, no checksum, window descriptor for 1 TiB.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf0, 0x01, 0x00, 0x00];
        let error = Compression::Zstd.decompress(&frame, 1 << 20).unwrap_err();
        assert!(matches!(error, RecordError::Decompress { .. }), "{error}");
    }
}
