//! Integration, interop and documentation tests of Kohort; see the `tests` folder.
