//! Programs that embed Kohort; see the `examples` folder.
