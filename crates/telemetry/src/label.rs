//! The closed set of label names. It is what keeps metric cardinality bounded; it is not extended per crate.
//! Every [`Event`](crate::Event) names its labels with it.

/// A label of a metric series: the only names Kohort puts on a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// The consumer group.
    Group,
    /// The topic.
    Topic,
    /// The partition number within its topic.
    Partition,
    /// The protocol request, e.g. `Heartbeat`.
    Api,
    /// A flat class of a reason, e.g. `fenced`.
    Class,
    /// A flavour of the event, e.g. `eager`.
    Kind,
    /// How something ended, e.g. `ok` or `error`.
    Result,
}

impl Label {
    /// Every label.
    pub const ALL: [Label; 7] =
        [Label::Group, Label::Topic, Label::Partition, Label::Api, Label::Class, Label::Kind, Label::Result];

    /// The label's name as metrics and traces show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Label::Group => "group",
            Label::Topic => "topic",
            Label::Partition => "partition",
            Label::Api => "api",
            Label::Class => "class",
            Label::Kind => "kind",
            Label::Result => "result",
        }
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
