// Kafka's own Java consumer and Admin against whatever broker stands at the given address: the four assignors of the
// classic protocol, static members, close options, and what Admin asks of groups. What is asserted must first be what
// Apache Kafka does.
//
//   java -cp 'KAFKA-JARS/*:.' Groups HOST:PORT
//
// Exits 0 with a line for each part, 1 with what went wrong.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Groups {
    private static final int PARTITIONS = 4;
    private static final Duration POLL = Duration.ofMillis(20);

    private final String bootstrap;
    private final Admin admin;
    private final String token = UUID.randomUUID().toString().substring(0, 8);

    private Groups(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        var groups = new Groups(arguments[0]);
        try {
            for (var assignor : List.of("Range", "RoundRobin", "Sticky", "CooperativeSticky")) {
                groups.assignor(assignor);
            }
            groups.staticMembers();
            groups.closeOptions();
            groups.administration();
            groups.topics();
        } catch (Throwable problem) {
            System.err.println("FAILED at " + arguments[0] + ": " + problem);
            problem.printStackTrace();
            System.exit(1);
        }
        groups.admin.close();
    }

    // -- A member.

    /** A consumer that writes down what it is given and takes what it is given. */
    private final class Member implements AutoCloseable, ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        int assignments;

        Member(String group, String topic, String assignor, String instance) {
            var config = new HashMap<String, Object>();
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", group);
            config.put("group.protocol", "classic");
            config.put("client.id", "java-" + (instance == null ? UUID.randomUUID() : instance));
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor + "Assignor");
            config.put("session.timeout.ms", 20000);
            config.put("heartbeat.interval.ms", 200);
            config.put("enable.auto.commit", false);
            config.put("auto.offset.reset", "earliest");
            config.put("key.deserializer", ByteArrayDeserializer.class);
            config.put("value.deserializer", ByteArrayDeserializer.class);
            if (instance != null) {
                config.put("group.instance.id", instance);
            }
            consumer = new KafkaConsumer<>(config);
            consumer.subscribe(List.of(topic), this);
        }

        void poll() {
            consumer.poll(POLL).forEach(records::add);
        }

        Set<Integer> partitions() {
            return consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assignments++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        }

        void close(GroupMembershipOperation operation) {
            consumer.close(CloseOptions.groupMembershipOperation(operation).withTimeout(Duration.ofSeconds(10)));
        }

        @Override
        public void close() {
            close(GroupMembershipOperation.DEFAULT);
        }
    }

    // -- The parts.

    private void assignor(String name) throws Exception {
        var topic = topic(name);
        var group = topic + "-group";
        var one = new Member(group, topic, name, null);
        var two = new Member(group, topic, name, null);
        share(List.of(one, two), List.of(2, 2));
        produce(topic, 200);
        take(List.of(one, two), 200);

        var three = new Member(group, topic, name, null);
        share(List.of(one, two, three), List.of(1, 1, 2));
        var described = describe(group);
        equal("state", GroupState.STABLE, described.groupState());
        var wire = Map.of("Range", "range", "RoundRobin", "roundrobin", "Sticky", "sticky", "CooperativeSticky", "cooperative-sticky");
        equal("assignor", wire.get(name), described.partitionAssignor());
        equal("type", GroupType.CLASSIC, described.type());
        var told = described.members().stream()
            .flatMap(member -> member.assignment().topicPartitions().stream())
            .map(TopicPartition::partition).sorted().toList();
        equal("assignments as described", List.of(0, 1, 2, 3), told);

        one.close();
        share(List.of(two, three), List.of(2, 2));
        produce(topic, 100);
        take(List.of(two, three), 100);
        two.close();
        three.close();
        equal("state", GroupState.EMPTY, describe(group).groupState());
        System.out.println("ok: " + name + ": shares, a third member, a leave, 300 records");
    }

    private void staticMembers() throws Exception {
        var topic = topic("static");
        var group = topic + "-group";
        var one = new Member(group, topic, "Range", "one");
        var two = new Member(group, topic, "Range", "two");
        share(List.of(one, two), List.of(2, 2));
        var had = one.partitions();
        var rounds = two.assignments;
        one.close();
        equal("members after a static member closed", 2, describe(group).members().size());
        var again = new Member(group, topic, "Range", "one");
        until("it has its partitions again", List.of(again, two), () -> again.partitions().equals(had));
        equal("rebalances of the other", rounds, two.assignments);

        // A second process with the same id takes its place; the first is told at its next call.
        var usurper = new Member(group, topic, "Range", "one");
        var fenced = new boolean[1];
        until("the older is fenced", List.of(usurper, two), () -> {
            try {
                again.poll();
            } catch (FencedInstanceIdException told) {
                fenced[0] = true;
            }
            return fenced[0] && usurper.partitions().equals(had);
        });
        fails("a commit of the fenced one", CommitFailedException.class,
            () -> again.consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0))));
        again.close();
        equal("members after the fenced one closed", 2, describe(group).members().size());

        // An operator removes them by their instance ids.
        fails("a member that is not there", UnknownMemberIdException.class,
            () -> get(admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all()));
        usurper.close();
        get(admin.removeMembersFromConsumerGroup(group,
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all());
        share(List.of(two), List.of(4));
        two.close(GroupMembershipOperation.REMAIN_IN_GROUP);
        equal("members", 1, describe(group).members().size());
        get(admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all());
        equal("state", GroupState.EMPTY, describe(group).groupState());
        System.out.println("ok: static members: a restart without a rebalance, fencing, removal by instance id");
    }

    private void closeOptions() throws Exception {
        var topic = topic("close");
        for (var instance : new String[] {null, "static"}) {
            for (var operation : GroupMembershipOperation.values()) {
                var group = topic + "-" + instance + "-" + operation;
                var member = new Member(group, topic, "Range", instance);
                share(List.of(member), List.of(4));
                member.close(operation);
                var stays = switch (operation) {
                    case DEFAULT -> instance != null;
                    case LEAVE_GROUP -> false;
                    case REMAIN_IN_GROUP -> true;
                };
                var members = describe(group).members();
                equal(instance + " " + operation, stays ? 1 : 0, members.size());
                for (var left : members) {
                    equal("instance id", instance, left.groupInstanceId().orElse(null));
                }
            }
        }
        System.out.println("ok: close options: dynamic and static, default, leave, remain");
    }

    private void administration() throws Exception {
        var topic = topic("admin");
        var other = topic("other");
        var group = topic + "-group";
        var place = new TopicPartition(topic, 0);
        var elsewhere = new TopicPartition(other, 0);
        produce(topic, 100);

        // A group that is nothing but offsets.
        get(admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(7, "noted"),
            elsewhere, new OffsetAndMetadata(3))).all());
        var offsets = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        equal("partitions with offsets", Set.of(place, elsewhere), offsets.keySet());
        equal("offset", 7L, offsets.get(place).offset());
        equal("metadata", "noted", offsets.get(place).metadata());
        equal("state", GroupState.EMPTY, describe(group).groupState());
        equal("simple", true, describe(group).isSimpleConsumerGroup());
        equal("listed as", GroupState.EMPTY, listing(new ListGroupsOptions(), group).groupState().orElse(null));

        // With a member.
        var member = new Member(group, topic, "Range", null);
        share(List.of(member), List.of(4));
        take(List.of(member), 93);
        equal("state", GroupState.STABLE, describe(group).groupState());
        equal("client id", true, describe(group).members().iterator().next().clientId().startsWith("java-"));
        equal("coordinator", true, describe(group).coordinator() != null);
        var stable = new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE));
        equal("listed as", "consumer", listing(stable, group).protocol());
        equal("type", GroupType.CLASSIC, listing(stable, group).type().orElse(null));
        equal("not listed as empty", null, listing(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY)), group));
        var classic = new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC));
        equal("listed as classic", true, listing(classic, group) != null);
        equal("not listed as consumer", null, listing(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER)), group));
        fails("offsets set under a member", UnknownMemberIdException.class,
            () -> get(admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(0))).all()));
        fails("offsets deleted under a member", GroupSubscribedToTopicException.class,
            () -> get(admin.deleteConsumerGroupOffsets(group, Set.of(place)).partitionResult(place)));
        get(admin.deleteConsumerGroupOffsets(group, Set.of(elsewhere)).all());
        fails("a group with a member", GroupNotEmptyException.class,
            () -> get(admin.deleteConsumerGroups(List.of(group)).all()));
        member.close();

        offsets = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        equal("partitions with offsets", false, offsets.containsKey(elsewhere));
        equal("offsets in all", 100L, offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
        get(admin.deleteConsumerGroupOffsets(group, Set.of(place)).all());
        offsets = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        equal("partitions with offsets", false, offsets.containsKey(place));
        get(admin.deleteConsumerGroups(List.of(group)).all());
        equal("listed", null, listing(new ListGroupsOptions(), group));
        fails("a group that is gone", GroupIdNotFoundException.class, () -> describe(group));
        fails("a group that is gone", GroupIdNotFoundException.class,
            () -> get(admin.deleteConsumerGroups(List.of(group)).all()));
        System.out.println("ok: administration: described, listed by state and type, offsets set and deleted, deleted");
    }

    private void topics() throws Exception {
        var topic = topic("grown");
        var group = topic + "-group";
        var member = new Member(group, topic, "Range", null);
        share(List.of(member), List.of(4));
        member.consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
        member.close();
        get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(6))).all());
        until("it has 6 partitions", List.of(), () -> {
            try {
                return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size() == 6;
            } catch (Exception notYet) {
                return false;
            }
        });
        get(admin.deleteTopics(List.of(topic)).all());
        until("its offsets are gone", List.of(), () -> {
            try {
                return get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).isEmpty();
            } catch (GroupIdNotFoundException gone) {
                return true;
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
        });
        System.out.println("ok: topics: grown, and deleted with the offsets of a group");
    }

    // -- What they share.

    private String topic(String name) throws Exception {
        var topic = "java-" + name.toLowerCase() + "-" + token;
        get(admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all());
        return topic;
    }

    private void produce(String topic, int records) throws Exception {
        var config = Map.<String, Object>of("bootstrap.servers", bootstrap, "linger.ms", 5,
            "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class);
        try (var producer = new KafkaProducer<byte[], byte[]>(config)) {
            var sent = new ArrayList<Future<?>>();
            for (var number = 0; number < records; number++) {
                var bytes = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
                sent.add(producer.send(new ProducerRecord<>(topic, number % PARTITIONS, bytes, bytes)));
            }
            for (var one : sent) {
                one.get(20, TimeUnit.SECONDS);
            }
        }
    }

    /** Polls until these many records came, checks that none came twice, and commits. */
    private void take(List<Member> members, int count) {
        until(count + " records", members, () -> members.stream().mapToInt(member -> member.records.size()).sum() >= count);
        var seen = new HashSet<String>();
        for (var member : members) {
            for (var record : member.records) {
                equal("once", true, seen.add(record.partition() + "@" + record.offset()));
            }
            member.records.clear();
        }
        equal("records", count, seen.size());
        for (var member : members) {
            // A cooperative rebalance may go on while records are taken; it ends by polling.
            until("a commit", members, () -> {
                try {
                    member.consumer.commitSync();
                    return true;
                } catch (RebalanceInProgressException notYet) {
                    return false;
                }
            });
        }
    }

    /** Polls until each has as many partitions as it should, and together they have all. */
    private void share(List<Member> members, List<Integer> sizes) {
        until("shares " + sizes, members, () -> {
            var all = new TreeSet<Integer>();
            members.forEach(member -> all.addAll(member.partitions()));
            var has = members.stream().map(member -> member.partitions().size()).sorted().toList();
            return has.equals(sizes) && all.size() == PARTITIONS;
        });
    }

    private void until(String what, List<Member> members, BooleanSupplier condition) {
        var deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within 30 s: " + what);
            }
            members.forEach(Member::poll);
            if (members.isEmpty()) {
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException stopped) {
            throw new IllegalStateException(stopped);
        }
    }

    private ConsumerGroupDescription describe(String group) throws Exception {
        return get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    private GroupListing listing(ListGroupsOptions options, String group) throws Exception {
        return get(admin.listGroups(options).all()).stream()
            .filter(listing -> listing.groupId().equals(group)).findFirst().orElse(null);
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void fails(String what, Class<? extends Exception> with, Step step) {
        try {
            step.run();
        } catch (Exception problem) {
            if (with.isInstance(problem)) {
                return;
            }
            throw new AssertionError(what + " failed with another error", problem);
        }
        throw new AssertionError(what + " did not fail with " + with.getSimpleName());
    }

    private static void equal(String what, Object wanted, Object is) {
        if (!Objects.equals(wanted, is)) {
            throw new AssertionError(what + " is " + is + ", should be " + wanted);
        }
    }

    private static <T> T get(org.apache.kafka.common.KafkaFuture<T> future) throws Exception {
        try {
            return future.get(30, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            throw failed.getCause() instanceof Exception cause ? cause : failed;
        }
    }
}
