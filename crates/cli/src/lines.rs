//! Lines of any bytes, read one after the other with bounded memory. Blocking: it runs on a thread of its own.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line that is read.
const MAX_LINE: u64 = 64 << 20;
const BUFFER: usize = 1 << 20;

/// Reads lines.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER, reader), number: 0 }
    }

    /// The next line without its newline; one that the input ends without a newline counts. `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() as u64 > MAX_LINE {
            let text = format!("line {} is longer than {MAX_LINE} bytes", self.number);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Some(line))
    }

    /// Whether the next line may have to be waited for.
    pub(crate) fn may_wait(&self) -> bool {
        !self.reader.buffer().contains(&b'\n')
    }
}

/// The key before the first separator and the value after it; without one the line is all value.
pub(crate) fn split(line: Vec<u8>, separator: &[u8]) -> (Option<Vec<u8>>, Vec<u8>) {
    let at = line.windows(separator.len().max(1)).position(|window| window == separator);
    match at {
        Some(at) => {
            let value = line[at + separator.len()..].to_vec();
            let mut key = line;
            key.truncate(at);
            (Some(key), value)
        }
        None => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bytes_and_the_last_needs_no_newline() {
        let mut lines = Lines::new(&b"a\xff\n\nlast"[..]);
        assert_eq!(lines.next().unwrap().as_deref(), Some(&b"a\xff"[..]));
        assert!(!lines.may_wait());
        assert_eq!(lines.next().unwrap().as_deref(), Some(&b""[..]));
        assert!(lines.may_wait());
        assert_eq!(lines.next().unwrap().as_deref(), Some(&b"last"[..]));
        assert_eq!(lines.next().unwrap(), None);
        assert_eq!(Lines::new(&b""[..]).next().unwrap(), None);
    }

    #[test]
    fn the_first_separator_splits() {
        assert_eq!(split(b"k\tv\tw".to_vec(), b"\t"), (Some(b"k".to_vec()), b"v\tw".to_vec()));
        assert_eq!(split(b"k::v".to_vec(), b"::"), (Some(b"k".to_vec()), b"v".to_vec()));
        assert_eq!(split(b"\tv".to_vec(), b"\t"), (Some(Vec::new()), b"v".to_vec()));
        assert_eq!(split(b"v".to_vec(), b"::"), (None, b"v".to_vec()));
        assert_eq!(split(Vec::new(), b"\t"), (None, Vec::new()));
    }
}
