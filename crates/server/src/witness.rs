//! Witnesses of the ledger: another machine, a file on another volume, and an authority that stamps times. They are told
//! each checkpoint, and the first two asked before a ledger is gone on with.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_client::{Client, ClientOptions, Reach};
use ledger::{Checkpoint, PublicKey, SigningKey, WitnessFile, Witnessed};
use mcp_server::{Component, ComponentState};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::timestamps::Authority;
use crate::{Failure, with_causes};
use config::Config;

/// Name in `/health` of the component for checkpoints that do not get to the witness.
pub(super) const COMPONENT: &str = "ledger_witness";

/// Longest time of one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Pauses between attempts, of which each is twice as long as the one before.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The most bytes of an answer: a checkpoint is a line.
const MAX_ANSWER: usize = 4096;

/// Time that the last checkpoint gets when a server ends.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Place that is told of checkpoints.
enum Place {
    Machine(Machine),
    Authority(Authority),
    File(WitnessFile),
}

impl Place {
    async fn tell(&mut self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        match self {
            Self::Machine(machine) => machine.tell(checkpoint).await,
            Self::Authority(authority) => authority.tell(checkpoint).await,
            // On a thread of its own, since a volume may hang.
            Self::File(file) => file.tell(checkpoint).map_err(|error| {
                format!("{} cannot be written: {error}", file.path().display()).into()
            }),
        }
    }
}

/// Witness that is another machine.
struct Machine {
    client: Client,
    url: Uri,
    authorization: Option<String>,
}

/// Tasks that tell the witnesses.
#[derive(Debug)]
pub(super) struct Witness {
    checkpoints: watch::Sender<Option<Checkpoint>>,
    states: Vec<Arc<watch::Sender<State>>>,
    /// Tasks that tell the other machine and the authority, if there are any.
    telling: Mutex<Vec<JoinHandle<()>>>,
    /// Last line of the file, if there is one.
    witnessed: Option<Witnessed>,
    /// Last line of the file of time-stamps, if there is one.
    stamped: Option<Witnessed>,
}

#[derive(Debug, Default)]
struct State {
    /// Entry that the last checkpoint seals which the witness has.
    told: u64,
    /// The reason why the last attempt failed.
    failed: Option<String>,
}

impl Machine {
    /// The machine of a configuration, if it has one.
    fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let witness = &config.ledger.witness;
        let Some(url) = &witness.url else {
            return Ok(None);
        };
        let url = url.reveal(&config.environment);
        let url = url.ok_or("ledger.witness.url refers to a variable that is not set")?;
        let url = http_client::parse_url(url.trim(), &["https", "http"])
            .map_err(|why| format!("ledger.witness.url cannot be used: {why}"))?;
        let token = match &witness.token {
            Some(token) => Some(
                token
                    .reveal(&config.environment)
                    .ok_or("ledger.witness.token refers to a variable that is not set")?,
            ),
            None => None,
        };
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            max_body: MAX_ANSWER,
            ..ClientOptions::default()
        })?;
        Ok(Some(Self {
            client,
            url,
            authorization: token.map(|token| format!("Bearer {}", token.trim())),
        }))
    }

    async fn ask(&self, method: Method, body: Bytes) -> Result<(StatusCode, Bytes), Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.url.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let answer = self.client.send(request.body(body)?).await?;
        Ok((answer.status(), answer.into_body()))
    }

    /// Tells the witness of a checkpoint.
    async fn tell(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let (status, _) = self.ask(Method::POST, checkpoint.to_json().into()).await?;
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("the witness has answered {status}").into()),
        }
    }

    /// The last checkpoint that the witness was told; `None` if it was told none.
    async fn last(&self) -> Result<Option<Checkpoint>, Failure> {
        let (status, body) = self.ask(Method::GET, Bytes::new()).await?;
        match status {
            StatusCode::NO_CONTENT | StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                let text = std::str::from_utf8(&body).unwrap_or_default();
                let checkpoint = Checkpoint::from_json(text.trim());
                let checkpoint = checkpoint.ok_or("the witness has answered with no checkpoint")?;
                Ok(Some(checkpoint))
            }
            status => Err(format!("the witness has answered {status}").into()),
        }
    }

    /// The address without what may be secret in it.
    fn name(&self) -> PathBuf {
        let host = self.url.authority().map_or("", |it| it.as_str());
        let path = self.url.path();
        format!(
            "{}://{host}{path}",
            self.url.scheme_str().unwrap_or_default()
        )
        .into()
    }
}

/// Asks the witness of a configuration for the last checkpoint that it was told. It blocks.
///
/// # Errors
///
/// When the witness cannot be asked and `ledger.witness.required` is true, or its answer is not to be believed.
pub(super) fn last(config: &Config) -> Result<Option<(Checkpoint, PathBuf)>, Failure> {
    let Some(place) = Machine::of(config)? else {
        return Ok(None);
    };
    let name = place.name();
    // The caller may be on a runtime, which must not be waited for.
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(place.last())
        });
        asking.join().unwrap_or_else(|_| Err("it panicked".into()))
    });
    let found = match asked {
        Ok(found) => found,
        Err(failure) if config.ledger.witness.required => {
            let why = with_causes(&*failure);
            return Err(format!(
                "the witness of the ledger, {}, cannot be asked: {why}. Without it nobody knows whether this ledger is \
                 an earlier copy; to start all the same, set ledger.witness.required to false",
                name.display()
            )
            .into());
        }
        Err(failure) => {
            let error = with_causes(&*failure);
            tracing::error!(witness = %name.display(), error, "the witness of the ledger cannot be asked");
            return Ok(None);
        }
    };
    let Some(checkpoint) = found else {
        return Ok(None);
    };
    if let Some(keys) = trusted_keys(config)? {
        // One that was told before there was a key has no signature, and proves as much as it did.
        match checkpoint.check_signature(&keys) {
            Ok(()) | Err(ledger::SignatureError::Missing) => {}
            Err(why) => {
                return Err(format!(
                    "the answer of {} is not to be believed: {why}",
                    name.display()
                )
                .into());
            }
        }
    }
    Ok(Some((checkpoint, name)))
}

/// The last line of the witness's file, for a process that tells it nothing; `None` where there is no such file.
pub(super) fn witnessed(config: &Config) -> Option<Witnessed> {
    let mut file = WitnessFile::new(config.ledger.witness.file.as_deref()?);
    file.open().ok()?;
    Some(file.witnessed())
}

/// Keys that may have signed checkpoints, where they are signed: the server's own and those that the configuration names,
/// earlier ones and those of other servers.
pub(super) fn trusted_keys(config: &Config) -> Result<Option<Vec<PublicKey>>, Failure> {
    let Some(key) = &config.ledger.checkpoint.key else {
        return Ok(None);
    };
    let mut keys = vec![SigningKey::load(key)?.public().clone()];
    for path in &config.ledger.verification.keys {
        keys.push(PublicKey::load(path)?);
    }
    Ok(Some(keys))
}

impl Witness {
    /// Tells the witnesses of a configuration of each checkpoint that comes, if there are any.
    pub(super) fn begin(config: &Config) -> Result<Option<Self>, Failure> {
        let machine = Machine::of(config)?;
        let file = config.ledger.witness.file.as_deref().map(WitnessFile::new);
        let authority = Authority::of(config)?;
        if machine.is_none() && file.is_none() && authority.is_none() {
            return Ok(None);
        }
        let (checkpoints, coming) = watch::channel(None);
        let mut witness = Self {
            checkpoints,
            states: Vec::new(),
            telling: Mutex::default(),
            witnessed: file.as_ref().map(WitnessFile::witnessed),
            stamped: authority.as_ref().map(Authority::stamped),
        };
        let machine = machine.map(Place::Machine);
        for place in machine.into_iter().chain(authority.map(Place::Authority)) {
            let telling = tell(place, coming.clone(), witness.state());
            witness.telling().push(tokio::spawn(telling));
        }
        if let Some(mut file) = file {
            if let Err(error) = file.open() {
                let path = file.path().display();
                tracing::error!(%error, %path, "the file of the ledger's witness cannot be read");
            }
            let telling = tell(Place::File(file), coming, witness.state());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?;
            // It ends with the last sender of checkpoints; nobody waits for a volume that hangs.
            std::thread::Builder::new()
                .name("witness".to_owned())
                .spawn(move || runtime.block_on(telling))?;
        }
        if let Some(problem) = beside(config) {
            tracing::warn!("{problem}");
        }
        Ok(Some(witness))
    }

    fn state(&mut self) -> Arc<watch::Sender<State>> {
        let state = Arc::new(watch::Sender::new(State::default()));
        self.states.push(Arc::clone(&state));
        state
    }

    /// Gets each checkpoint once it is in the ledger.
    pub(super) fn checkpoints(&self) -> watch::Sender<Option<Checkpoint>> {
        self.checkpoints.clone()
    }

    /// Last line of the witness's file, if there is one.
    pub(super) fn witnessed(&self) -> Option<Witnessed> {
        self.witnessed.clone()
    }

    /// Last line of the file of time-stamps, if there is one.
    pub(super) fn stamped(&self) -> Option<Witnessed> {
        self.stamped.clone()
    }

    /// Component of `/health`, which fails while a witness cannot be told.
    pub(super) fn component(&self) -> Component {
        let states = self.states.clone();
        Component::new(move || {
            let failed = states
                .iter()
                .filter_map(|state| state.borrow().failed.clone());
            let failed: Vec<_> = failed.collect();
            ComponentState {
                name: COMPONENT,
                ok: failed.is_empty(),
                detail: (!failed.is_empty()).then(|| failed.join("; ")),
            }
        })
    }

    /// Gives the last checkpoint some time to get there, and ends.
    pub(super) async fn close(&self) {
        let last = self
            .checkpoints
            .borrow()
            .as_ref()
            .map_or(0, |it| it.sequence);
        let told = async {
            for state in &self.states {
                let mut state = state.subscribe();
                let _ = state.wait_for(|state| last <= state.told).await;
            }
        };
        if tokio::time::timeout(LAST_WORD, told).await.is_err() {
            tracing::warn!(
                sequence = last,
                "a witness of the ledger was not told of the last checkpoint"
            );
        }
        for telling in self.telling().drain(..) {
            telling.abort();
        }
    }

    fn telling(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a witness's file proves less than it could: it is on the volume of the ledger in a file.
pub fn beside(config: &Config) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let file = config.ledger.witness.file.as_deref()?;
        let ledger = config.ledger.url.is_none().then_some(&config.ledger.path)?;
        let volume = |path: &Path| {
            let directory = path.parent().filter(|it| *it != Path::new(""));
            let found = std::fs::metadata(directory.unwrap_or(Path::new(".")));
            found.ok().map(|found| found.dev())
        };
        (volume(file)? == volume(ledger)?).then(|| {
            format!(
                "the file of the ledger's witness, {}, is on the volume of the ledger: who puts back one can put back both",
                file.display()
            )
        })
    }
    #[cfg(not(unix))]
    {
        let _ = config;
        None
    }
}

/// Tells of the newest checkpoint until it has got there, or there is a newer one.
async fn tell(
    mut place: Place,
    mut coming: watch::Receiver<Option<Checkpoint>>,
    state: Arc<watch::Sender<State>>,
) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let newest = coming.borrow_and_update().clone();
        let told = state.borrow().told;
        let Some(checkpoint) = newest.filter(|it| told < it.sequence) else {
            if coming.changed().await.is_err() {
                return;
            }
            continue;
        };
        match place.tell(&checkpoint).await {
            Ok(()) => {
                pause = SHORTEST_PAUSE;
                state.send_modify(|state| (state.told, state.failed) = (checkpoint.sequence, None));
            }
            Err(failure) => {
                let why = with_causes(&*failure);
                tracing::warn!(
                    error = why,
                    sequence = checkpoint.sequence,
                    "a witness of the ledger cannot be told"
                );
                let why = format!(
                    "the checkpoint of entry {} did not get to the witness: {why}",
                    checkpoint.sequence
                );
                state.send_modify(|state| state.failed = Some(why));
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}
