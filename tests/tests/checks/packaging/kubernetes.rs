//! `packaging/kubernetes/`: the manifests fit together, the schemas of the API, and the server.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value};
use tempfile::TempDir;
use xds_tests::server::xds_server;
use xds_tests::tools::{self, run};

use crate::packaging::flags::Flags;
use crate::packaging::{read, root};

/// The paths that `--probe-listen` serves.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The manifests that the `kustomization.yaml` of a directory lists.
struct Manifests {
    directory: String,
    objects: Vec<Value>,
}

impl Manifests {
    fn read(name: &str) -> Result<Self> {
        let directory = format!("packaging/kubernetes/{name}");
        let list: Value = serde_saphyr::from_str(&read(&format!("{directory}/kustomization.yaml"))?)?;
        let mut objects = Vec::new();
        for file in list["resources"].as_array().context("no resources")? {
            let path = format!("{directory}/{}", file.as_str().context("no file")?);
            for document in read(&path)?.split("\n---\n") {
                objects.push(serde_saphyr::from_str(document).with_context(|| path.clone())?);
            }
        }
        Ok(Self { directory, objects })
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    fn server(&self) -> Result<&Value> {
        self.of_kind("StatefulSet").next().context("no StatefulSet")
    }

    fn pod(&self) -> Result<&Value> {
        Ok(&self.server()?["spec"]["template"]["spec"])
    }

    fn container(&self) -> Result<&Value> {
        self.pod()?["containers"].get(0).context("no container")
    }

    fn args(&self) -> Result<Vec<&str>> {
        let args = self.container()?["args"].as_array().context("no args")?;
        args.iter().map(|arg| arg.as_str().context("no text")).collect()
    }

    /// The ports of the container by name.
    fn ports(&self) -> Result<Map<String, Value>> {
        let ports = self.container()?["ports"].as_array().context("no ports")?;
        let named =
            ports.iter().map(|port| Some((port["name"].as_str()?.to_owned(), port["containerPort"].clone())));
        named.collect::<Option<_>>().context("a port without a name")
    }
}

fn all() -> Result<Vec<Manifests>> {
    ["single", "replicas"].into_iter().map(Manifests::read).collect()
}

#[tokio::test]
async fn the_manifests_fit_the_schemas_of_the_api() -> Result<()> {
    let program = tools::kubernetes_validate().await?;
    let validate = |path: &Path| run(Command::new(&program).args(["--strict", "--quiet"]).arg(path));
    for manifests in all()? {
        for file in fs::read_dir(root().join(&manifests.directory))? {
            let path = file?.path();
            // That one is for the tool that puts them together, and has no schema here.
            if path.file_name().is_some_and(|name| name != "kustomization.yaml") {
                validate(&path)?;
            }
        }
    }
    let dir = TempDir::new()?;
    let wrong = dir.path().join("wrong.yaml");
    let manifest = read("packaging/kubernetes/single/server.yaml")?;
    fs::write(&wrong, manifest.replace("readOnlyRootFilesystem:", "readOnlyRoot:"))?;
    let refused = validate(&wrong).err().context("an unknown field is not seen")?.to_string();
    ensure!(refused.contains("readOnlyRoot"), "{refused}");
    Ok(())
}

#[test]
fn every_manifest_of_a_directory_is_listed() -> Result<()> {
    for manifests in all()? {
        let list = read(&format!("{}/kustomization.yaml", manifests.directory))?;
        for file in fs::read_dir(root().join(&manifests.directory))? {
            let name = file?.file_name().into_string().unwrap_or_default();
            ensure!(
                name == "kustomization.yaml" || list.contains(&name),
                "{name} is not in {}",
                manifests.directory
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_server_knows_every_flag_and_variable() -> Result<()> {
    let flags = Flags::of_serve().await?;
    for manifests in all()? {
        flags.check_words(manifests.args()?)?;
        let variables = manifests.container()?["env"].as_array().context("no env")?;
        let names: Vec<&str> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
        names.iter().try_for_each(|name| flags.check_variable(name))?;
        for used in manifests.args()?.iter().filter_map(|arg| arg.split_once("$(")?.1.split(')').next()) {
            ensure!(names.contains(&used), "$({used}) is not set");
        }
    }
    Ok(())
}

#[test]
fn selectors_select_the_pods_of_the_server() -> Result<()> {
    for manifests in all()? {
        let labels = &manifests.server()?["spec"]["template"]["metadata"]["labels"];
        ensure!(labels.as_object().is_some_and(|labels| !labels.is_empty()));
        let mut selectors = vec![&manifests.server()?["spec"]["selector"]["matchLabels"]];
        selectors.extend(manifests.of_kind("Service").map(|service| &service["spec"]["selector"]));
        selectors.extend(
            manifests.of_kind("NetworkPolicy").map(|policy| &policy["spec"]["podSelector"]["matchLabels"]),
        );
        selectors.extend(
            manifests.of_kind("PodDisruptionBudget").map(|budget| &budget["spec"]["selector"]["matchLabels"]),
        );
        if let Some(spread) = manifests.pod()?["topologySpreadConstraints"].as_array() {
            selectors.extend(spread.iter().map(|constraint| &constraint["labelSelector"]["matchLabels"]));
        }
        for selector in selectors {
            ensure!(selector == labels, "{selector} does not select {labels} in {}", manifests.directory);
        }
        let governing = &manifests.server()?["spec"]["serviceName"];
        let found = manifests.of_kind("Service").find(|service| service["metadata"]["name"] == *governing);
        ensure!(
            found.context("no governing Service")?["spec"]["clusterIP"] == "None",
            "{governing} must be headless"
        );
    }
    Ok(())
}

#[test]
fn ports_of_services_policies_and_probes_are_those_the_server_listens_on() -> Result<()> {
    for manifests in all()? {
        let ports = manifests.ports()?;
        let args = manifests.args()?.join(" ");
        for (name, flag) in [("xds", "xds"), ("probe", "probe"), ("peers", "peer")] {
            let listens = args.contains(&format!("--{flag}-listen="));
            ensure!(listens == ports.contains_key(name), "{name} in {}", manifests.directory);
            if let Some(port) = ports.get(name) {
                ensure!(
                    args.contains(&format!("--{flag}-listen=0.0.0.0:{port}")),
                    "--{flag}-listen is not {port}"
                );
            }
        }
        let exists = |name: &Value| name.as_str().is_some_and(|name| ports.contains_key(name));
        for port in
            manifests.of_kind("Service").filter_map(|service| service["spec"]["ports"].as_array()).flatten()
        {
            ensure!(
                exists(&port["targetPort"])
                    && ports.get(port["name"].as_str().unwrap_or_default()) == Some(&port["port"]),
                "{port}"
            );
        }
        for rule in manifests
            .of_kind("NetworkPolicy")
            .filter_map(|policy| policy["spec"]["ingress"].as_array())
            .flatten()
        {
            let open = rule["ports"].as_array().context("a rule without ports opens all")?;
            ensure!(open.iter().all(|port| exists(&port["port"])), "{rule}");
            ensure!(
                rule["from"].as_array().is_some_and(|from| !from.is_empty()),
                "everyone may reach {open:?}"
            );
        }
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let get = &manifests.container()?[probe]["httpGet"];
            ensure!(
                get["port"] == "probe" && PROBES.iter().any(|path| get["path"] == *path),
                "{probe}: {get}"
            );
        }
    }
    Ok(())
}

#[test]
fn every_path_of_a_flag_is_mounted_and_every_mount_has_a_volume() -> Result<()> {
    for manifests in all()? {
        let names = |list: &Value| -> BTreeSet<String> {
            list.as_array()
                .into_iter()
                .flatten()
                .filter_map(|volume| Some(volume["name"].as_str()?.to_owned()))
                .collect()
        };
        let mut volumes = names(&manifests.pod()?["volumes"]);
        for claim in manifests.server()?["spec"]["volumeClaimTemplates"].as_array().context("no claims")? {
            volumes.extend(claim["metadata"]["name"].as_str().map(str::to_owned));
        }
        let mounts = &manifests.container()?["volumeMounts"];
        ensure!(names(mounts) == volumes, "{mounts} of {volumes:?}");
        let mounted: Vec<&Value> = mounts.as_array().into_iter().flatten().collect();
        for path in manifests.args()?.iter().filter_map(|arg| arg.split_once('=').map(|(_, value)| value)) {
            let below = |mount: &&Value| path.starts_with(mount["mountPath"].as_str().unwrap_or("-"));
            ensure!(!path.starts_with('/') || mounted.iter().any(below), "{path} is on no volume");
        }
        for mount in mounted {
            ensure!(mount["readOnly"] == true || mount["name"] == "state", "{mount} can be written to");
        }
    }
    Ok(())
}

/// What the Pod Security Standard `restricted` demands, and a root file system that nobody can write to.
#[test]
fn the_pod_may_do_nothing_that_the_server_does_not_need() -> Result<()> {
    for manifests in all()? {
        let (pod, container) =
            (&manifests.pod()?["securityContext"], &manifests.container()?["securityContext"]);
        ensure!(
            pod["runAsNonRoot"] == true && pod["runAsUser"] == 65534 && pod["runAsGroup"] == 65534,
            "{pod}"
        );
        ensure!(pod["seccompProfile"]["type"] == "RuntimeDefault", "{pod}");
        ensure!(
            container["allowPrivilegeEscalation"] == false && container["readOnlyRootFilesystem"] == true,
            "{container}"
        );
        ensure!(container["capabilities"]["drop"] == serde_json::json!(["ALL"]), "{container}");
        ensure!(manifests.pod()?["automountServiceAccountToken"] == false);
        let enforced = manifests.of_kind("Namespace").next().context("no Namespace")?;
        ensure!(
            enforced["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted",
            "{enforced}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_routes_of_the_example_are_correct() -> Result<()> {
    let single = Manifests::read("single")?;
    let dir = TempDir::with_prefix("xds-routes-")?;
    for (name, text) in single.of_kind("ConfigMap").filter_map(|map| map["data"].as_object()).flatten() {
        fs::write(dir.path().join(name), text.as_str().context("no text")?)?;
    }
    let output = xds_server().await?.args(["validate", "--strict"]).arg(dir.path()).output().await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}
