//! Supervision against bare ractor and against `ractor-supervisor`, on one thread: `cargo bench` in `bench/`.

use criterion::{Criterion, criterion_group, criterion_main};
use kohort_bench::{ByHand, Fail, Parent, Probe, ours, peer_options, peers};
use kohort_supervisor::{ChildId, DynamicSupervisor, Restart, Supervisor, SupervisorRef};
use ractor::{Actor, ActorCell, ActorRef, ActorStatus};
use ractor_supervisor::{
    DynamicSupervisor as PeerPool, DynamicSupervisorOptions, Supervisor as Peer, SupervisorArguments,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc};

const MANY: usize = 10_000;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Sums what one round gives.
fn rounds<F: AsyncFnMut() -> Duration>(rounds: u64, mut round: F) -> impl Future<Output = Duration> {
    async move {
        let mut total = Duration::ZERO;
        for _ in 0..rounds {
            total += round().await;
        }
        total
    }
}

fn spawn_and_stop(c: &mut Criterion) {
    let mut group = c.benchmark_group("spawn_and_stop");
    let probe = Probe::default();
    let runtime = runtime();
    let (parent, _) = runtime.block_on(Actor::spawn(None, Parent, ())).unwrap();
    group.bench_function("bare", |b| {
        b.iter(|| {
            runtime.block_on(async {
                let cell = parent.get_cell();
                let (actor, _) = Actor::spawn_linked(None, probe.clone(), (), cell).await.unwrap();
                actor.stop(None);
                actor.wait(None).await.unwrap();
            })
        })
    });
    let of_ours = probe.clone();
    let pool = DynamicSupervisor::new(move |id: ChildId| ours(id, &of_ours).restart(Restart::Temporary));
    let pool = runtime.block_on(pool.start()).unwrap();
    let id = ChildId::from("child");
    group.bench_function("kohort", |b| {
        b.iter(|| {
            runtime.block_on(async {
                pool.start_child(id.clone()).await.unwrap();
                pool.terminate_child(&id).await.unwrap();
            })
        })
    });
    let options = DynamicSupervisorOptions {
        max_children: None,
        max_restarts: 1,
        max_window: Duration::from_secs(1),
        reset_after: None,
    };
    let (peer, _) = runtime.block_on(PeerPool::spawn("pool".into(), options)).unwrap();
    group.bench_function("ractor-supervisor", |b| {
        b.iter(|| {
            runtime.block_on(async {
                PeerPool::spawn_child(peer.clone(), peers("child".into(), &probe)).await.unwrap();
                let child = ractor::registry::where_is("child").unwrap();
                PeerPool::terminate_child(peer.clone(), "child".into()).await.unwrap();
                child.wait(None).await.unwrap();
            })
        })
    });
    group.finish();
}

/// Where a probe tells that it runs.
type Running = Arc<Mutex<mpsc::UnboundedReceiver<Instant>>>;

async fn fail(running: &Running, probe: &Probe, child: &ActorCell) -> Duration {
    child.send_message(Fail).ok().unwrap();
    let again = running.lock().await.recv().await.unwrap();
    again - probe.failed.lock().unwrap().take().unwrap()
}

async fn bare_spawn(parent: ActorRef<()>, probe: Probe, running: Running) -> Duration {
    let began = Instant::now();
    let (actor, _) = Actor::spawn_linked(None, probe, (), parent.get_cell()).await.unwrap();
    let took = running.lock().await.recv().await.unwrap() - began;
    actor.stop(None);
    actor.wait(None).await.unwrap();
    took
}

async fn by_hand(parent: ActorRef<()>, probe: Probe, running: Running) -> Duration {
    let child = loop {
        // The one before it may still be there.
        let running = |child: &ActorCell| child.get_status() == ActorStatus::Running;
        match parent.get_children().into_iter().find(running) {
            Some(child) => break child,
            None => tokio::task::yield_now().await,
        }
    };
    fail(&running, &probe, &child).await
}

async fn kohort(root: SupervisorRef, probe: Probe, running: Running) -> Duration {
    let child = loop {
        if let Some(child) = root.which_children().await.unwrap()[0].cell.clone() {
            break child;
        }
    };
    fail(&running, &probe, &child).await
}

async fn peer(probe: Probe, running: Running) -> Duration {
    let child = loop {
        match ractor::registry::where_is("child").filter(|child| child.get_status() == ActorStatus::Running) {
            Some(child) => break child,
            None => tokio::task::yield_now().await,
        }
    };
    fail(&running, &probe, &child).await
}

/// Rounds in a task of the runtime: where it has threads of its own, `block_on` is on none of them.
fn measure<F>(runtime: &Runtime, count: u64, round: impl Fn() -> F + Send + 'static) -> Duration
where
    F: Future<Output = Duration> + Send + 'static,
{
    let task = async move {
        let mut total = Duration::ZERO;
        for _ in 0..count {
            total += round().await;
        }
        total
    };
    runtime.block_on(runtime.spawn(task)).unwrap()
}

/// From the moment in which a child fails to the one in which the next incarnation runs.
fn restart_on(c: &mut Criterion, name: &str, runtime: Runtime) {
    let mut group = c.benchmark_group(name);
    let (tell, running) = mpsc::unbounded_channel();
    let running: Running = Arc::new(Mutex::new(running));
    let probe = Probe { running: Some(tell), ..Probe::default() };
    let hear = || runtime.block_on(async { running.lock().await.recv().await });

    let (parent, _) = runtime.block_on(Actor::spawn(None, Parent, ())).unwrap();
    group.bench_function("bare_spawn", |b| {
        b.iter_custom(|count| {
            let (parent, probe, running) = (parent.clone(), probe.clone(), running.clone());
            measure(&runtime, count, move || bare_spawn(parent.clone(), probe.clone(), running.clone()))
        })
    });

    let (parent, _) = runtime.block_on(Actor::spawn(None, ByHand(probe.clone()), ())).unwrap();
    hear();
    group.bench_function("by_hand", |b| {
        b.iter_custom(|count| {
            let (parent, probe, running) = (parent.clone(), probe.clone(), running.clone());
            measure(&runtime, count, move || by_hand(parent.clone(), probe.clone(), running.clone()))
        })
    });
    parent.kill();

    let builder = Supervisor::one_for_one().intensity(u32::MAX, Duration::from_millis(1));
    let root = runtime.block_on(builder.child(ours("child", &probe)).start()).unwrap();
    hear();
    group.bench_function("kohort", |b| {
        b.iter_custom(|count| {
            let (root, probe, running) = (root.clone(), probe.clone(), running.clone());
            measure(&runtime, count, move || kohort(root.clone(), probe.clone(), running.clone()))
        })
    });
    runtime.block_on(root.shutdown());

    let specs =
        SupervisorArguments { child_specs: vec![peers("child".into(), &probe)], options: peer_options() };
    let (supervisor, end) = runtime.block_on(Peer::spawn("restarting".into(), specs)).unwrap();
    hear();
    group.sample_size(10).bench_function("ractor-supervisor", |b| {
        b.iter_custom(|count| {
            let (probe, running) = (probe.clone(), running.clone());
            measure(&runtime, count, move || peer(probe.clone(), running.clone()))
        })
    });
    supervisor.kill();
    runtime.block_on(end).unwrap();
    group.finish();
}

fn restart(c: &mut Criterion) {
    restart_on(c, "restart", runtime());
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    restart_on(c, "restart_two_threads", threads.unwrap());
}

async fn bare_many(parent: &ActorRef<()>, probe: &Probe) -> Vec<ActorCell> {
    let mut cells = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        let (actor, _) = Actor::spawn_linked(None, probe.clone(), (), parent.get_cell()).await.unwrap();
        cells.push(actor.get_cell());
    }
    cells
}

/// Ten thousand children: the start of all, and their stop, one at a time and in reverse order where it is known.
fn many(c: &mut Criterion) {
    let probe = Probe::default();
    let runtime = runtime();
    let (parent, _) = runtime.block_on(Actor::spawn(None, Parent, ())).unwrap();
    let builder = Supervisor::one_for_one().children((0..MANY).map(|n| ours(n.to_string(), &probe)));
    let peer = || SupervisorArguments {
        child_specs: (0..MANY).map(|n| peers(n.to_string(), &probe)).collect(),
        options: peer_options(),
    };
    for stop in [false, true] {
        let mut group = c.benchmark_group(if stop { "stop_10000" } else { "start_10000" });
        group.sample_size(20);
        let of = |began: Instant, started: Instant| if stop { started.elapsed() } else { started - began };
        group.bench_function("bare", |b| {
            b.iter_custom(|count| {
                runtime.block_on(rounds(count, async || {
                    let began = Instant::now();
                    let cells = bare_many(&parent, &probe).await;
                    let started = Instant::now();
                    for cell in cells.iter().rev() {
                        cell.stop(None);
                        cell.wait(None).await.unwrap();
                    }
                    of(began, started)
                }))
            })
        });
        group.bench_function("kohort", |b| {
            b.iter_custom(|count| {
                runtime.block_on(rounds(count, async || {
                    let began = Instant::now();
                    let root = builder.start().await.unwrap();
                    let started = Instant::now();
                    black_box(root.shutdown().await);
                    of(began, started)
                }))
            })
        });
        // It starts them after its own start was answered, and kills them at once without an order.
        group.bench_function("ractor-supervisor", |b| {
            b.iter_custom(|count| {
                runtime.block_on(rounds(count, async || {
                    let specs = peer();
                    let began = Instant::now();
                    let (root, end) = Peer::spawn("many".into(), specs).await.unwrap();
                    while ractor::registry::where_is((MANY - 1).to_string()).is_none() {
                        tokio::task::yield_now().await;
                    }
                    let started = Instant::now();
                    let children = root.get_children();
                    root.stop(None);
                    end.await.unwrap();
                    for child in children {
                        child.wait(None).await.unwrap();
                    }
                    of(began, started)
                }))
            })
        });
        group.finish();
    }
}

fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots()
}

criterion_group! { name = benches; config = config(); targets = spawn_and_stop, restart, many }
criterion_main!(benches);
