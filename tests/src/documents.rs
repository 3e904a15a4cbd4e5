//! Route documents, and the world to try them in: backends, a server that reads them, an Envoy that follows it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::backend::Backend;
use crate::config::ConfigDir;
use crate::envoy::Envoy;
use crate::rpc::{Ask, Told};
use crate::server::{Server, Setup, Variant, free_addr};
use crate::wait::{PATIENCE, wait_for};
use crate::worker::{Library, Worker};

/// Backends, each behind a Service, and a server whose documents a test writes.
///
/// In documents `{a}`, where `a` is one of the names given to [`ports`](Self::ports), stands for a free port, and `{v1}` for
/// the port of the backend `v1`.
#[derive(Debug)]
pub struct World {
    /// The watched directory.
    pub config: ConfigDir,
    /// The server.
    pub server: Server,
    /// The backends by name.
    pub backends: BTreeMap<String, Backend>,
    ports: BTreeMap<String, u16>,
}

/// A Service of one port with one endpoint, as documents.
#[must_use]
pub fn service(namespace: &str, name: &str, port: u16, addr: SocketAddr) -> String {
    service_with(namespace, name, port, &[addr], "")
}

/// A Service with any number of endpoints, and with an `appProtocol` unless that is empty.
#[must_use]
pub fn service_with(
    namespace: &str,
    name: &str,
    port: u16,
    addrs: &[SocketAddr],
    app_protocol: &str,
) -> String {
    let app_protocol = match app_protocol {
        "" => String::new(),
        text => format!(", appProtocol: {text}"),
    };
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{ports: [{{name: main, port: {port}{app_protocol}}}]}}\n---\n"
    );
    for (index, addr) in addrs.iter().enumerate() {
        text.push_str(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{index}, namespace: \
             {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: main, \
             port: {}}}]\nendpoints: [{{addresses: [{}]}}]\n---\n",
            addr.port(),
            addr.ip(),
        ));
    }
    text
}

impl World {
    /// Starts backends, and a server with a Service for each of them: port 8080, in the namespace of `namespace/name`, or in
    /// `default`. A backend's name is the part behind `/`.
    ///
    /// # Errors
    ///
    /// If something does not start.
    pub async fn start(services: &[&str]) -> Result<Self> {
        Self::start_with(Setup::new()?, services).await
    }

    /// Starts them with another setup of the server.
    ///
    /// # Errors
    ///
    /// If something does not start.
    pub async fn start_with(setup: Setup, services: &[&str]) -> Result<Self> {
        let config = ConfigDir::new()?;
        let mut backends = BTreeMap::new();
        let mut ports = BTreeMap::new();
        let mut text = String::new();
        for one in services {
            let (namespace, name) = one.split_once('/').unwrap_or(("default", one));
            let backend = Backend::start(name).await?;
            text.push_str(&service(namespace, name, 8080, backend.addr()));
            ports.insert(name.to_owned(), backend.port());
            backends.insert(name.to_owned(), backend);
        }
        if !text.is_empty() {
            config.write("services.yaml", &text)?;
        }
        let server = Server::start_with(setup.watch(config.path())).await?;
        Ok(Self { config, server, backends, ports })
    }

    /// A free port for each name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn ports(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            self.ports.insert((*name).to_owned(), free_addr()?.port());
        }
        Ok(())
    }

    /// The port that a name stands for.
    ///
    /// # Errors
    ///
    /// If there is no such name.
    pub fn port(&self, name: &str) -> Result<u16> {
        self.ports.get(name).copied().with_context(|| format!("no port {name}"))
    }

    /// Writes a file of documents, names of ports replaced.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, file: &str, documents: &str) -> Result<()> {
        self.config.write(file, &self.filled(documents)).map(drop)
    }

    /// The documents with the names of ports replaced.
    #[must_use]
    pub fn filled(&self, documents: &str) -> String {
        let mut text = documents.to_owned();
        for (name, port) in &self.ports {
            text = text.replace(&format!("{{{name}}}"), &port.to_string());
        }
        text
    }

    /// Starts an Envoy that follows the server, and waits until it is live.
    ///
    /// # Errors
    ///
    /// If it does not come so far.
    pub async fn envoy(&self, variant: Variant) -> Result<Envoy> {
        let envoy = Envoy::start(&self.server.bootstrap_envoy("envoy", variant).await?).await?;
        envoy.wait_live().await?;
        Ok(envoy)
    }

    /// Starts a gRPC client that follows the server; `None` if its toolchain is missing.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn worker(&self, library: Library) -> Result<Option<Worker>> {
        Worker::start(library, &self.server.bootstrap_grpc("grpc").await?).await
    }

    /// Asks at a named port, without waiting for anything.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn ask(&self, port: &str, ask: &Ask) -> Result<Told> {
        ask.send(SocketAddr::from(([127, 0, 0, 1], self.port(port)?))).await
    }

    /// Asks at a named port until a backend answers, and well.
    ///
    /// # Errors
    ///
    /// If it does not; the error holds the last answer.
    pub async fn expect_from(&self, port: &str, ask: &Ask, backend: &str) -> Result<Told> {
        self.expect(port, ask, |told| told.ensure_from(backend)).await
    }

    /// Asks at a named port until the answer has this status and is of no backend.
    ///
    /// # Errors
    ///
    /// If it does not come.
    pub async fn expect_code(&self, port: &str, ask: &Ask, code: u16) -> Result<Told> {
        self.expect(port, ask, |told| told.ensure_code(code)).await
    }

    /// Asks at a named port until the answer is good.
    ///
    /// # Errors
    ///
    /// If it is not in time; the error holds the last one.
    pub async fn expect(&self, port: &str, ask: &Ask, is_good: impl Fn(&Told) -> Result<()>) -> Result<Told> {
        wait_for("the answer", PATIENCE, async || {
            let told = self.ask(port, ask).await?;
            is_good(&told)?;
            Ok(told)
        })
        .await
        .with_context(|| format!("{ask:?} at {port}"))
    }

    /// The conditions of an object as [`ObjectConditions`], as soon as it has any.
    ///
    /// # Errors
    ///
    /// If it gets none.
    pub async fn conditions(&self, kind: &str, namespace: &str, name: &str) -> Result<ObjectConditions> {
        let path = format!("/v1/conditions?kind={kind}&namespace={namespace}&name={name}");
        wait_for("conditions", PATIENCE, async || {
            let json = self.server.get_json(&path).await?;
            let objects = json["objects"].as_array().cloned().unwrap_or_default();
            let object = objects.into_iter().next().with_context(|| format!("none: {json}"))?;
            Ok(ObjectConditions(object))
        })
        .await
        .with_context(|| path.clone())
    }

    /// Waits until a condition of an object has a status and reason: `parent` is the index of the route's parent, `None` for
    /// the object itself.
    ///
    /// # Errors
    ///
    /// If it does not come; the error holds all conditions of the object.
    pub async fn expect_condition(
        &self,
        (kind, namespace, name): (&str, &str, &str),
        parent: Option<usize>,
        (condition, status, reason): (&str, &str, &str),
    ) -> Result<()> {
        wait_for("the condition", PATIENCE, async || {
            let object = self.conditions(kind, namespace, name).await?;
            let found = object.find(parent, condition);
            let found = found.with_context(|| format!("no {condition} in {object:?}"))?;
            ensure!(found == (status.to_owned(), reason.to_owned()), "{condition} is {found:?}: {object:?}");
            Ok(())
        })
        .await
    }

    /// Waits until a condition of a listener of a Gateway in the namespace `default` has a status and reason.
    ///
    /// # Errors
    ///
    /// If it does not come; the error holds all conditions of the Gateway.
    pub async fn expect_listener(
        &self,
        (gateway, listener): (&str, &str),
        (condition, status, reason): (&str, &str, &str),
    ) -> Result<()> {
        wait_for("the condition", PATIENCE, async || {
            let object = self.conditions("Gateway", "default", gateway).await?;
            let found = ObjectConditions(object.listener(listener)).find(None, condition);
            let found = found.with_context(|| format!("no {condition} in {object:?}"))?;
            ensure!(found == (status.to_owned(), reason.to_owned()), "{condition} is {found:?}: {object:?}");
            Ok(())
        })
        .await
    }

    /// The version of a type that a node ACKed last; the type's last word is enough.
    ///
    /// # Errors
    ///
    /// If the node is not there, or has ACKed nothing of the type yet.
    pub async fn acked_version(&self, node: &str, type_name: &str) -> Result<String> {
        let status = self.server.get_json(&format!("/v1/nodes/{node}")).await?;
        let types = status["types"].as_object().with_context(|| format!("no types: {status:#}"))?;
        let found = types.iter().find(|(url, _)| url.rsplit('.').next() == Some(type_name));
        let version = found.and_then(|(_, one)| one["versionAcked"].as_str());
        Ok(version.with_context(|| format!("no version of {type_name}: {status:#}"))?.to_owned())
    }
}

/// An object of `GET /v1/conditions`.
#[derive(Clone, Debug)]
pub struct ObjectConditions(pub Value);

impl ObjectConditions {
    /// Status and reason of a condition of the parent at that index, or of the object itself.
    #[must_use]
    pub fn find(&self, parent: Option<usize>, condition: &str) -> Option<(String, String)> {
        let owner = match parent {
            Some(index) => &self.0["parents"][index],
            None => &self.0,
        };
        let found = owner["conditions"].as_array()?.iter().find(|one| one["type"] == condition)?;
        Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
    }

    /// The listener with this name.
    #[must_use]
    pub fn listener(&self, name: &str) -> Value {
        let mut listeners = self.0["listeners"].as_array().into_iter().flatten();
        listeners.find(|listener| listener["name"] == name).cloned().unwrap_or(Value::Null)
    }
}
