//! Numbers that are read when they are asked for.

use prometheus::{
    core::{Collector, Desc},
    proto,
};
use std::{collections::HashMap, fmt};

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only goes up, and starts over with the process.
    Counter,
    /// A number that goes up and down.
    Gauge,
}

/// The values of one metric, as they are read.
#[derive(Debug)]
pub struct Samples {
    kind: Kind,
    labels: &'static [&'static str],
    metrics: Vec<proto::Metric>,
}

impl Samples {
    /// One value. `labels` are the values of the metric's labels, in their order.
    pub fn push(&mut self, labels: &[&str], value: f64) {
        let mut metric = labelled(self.labels, labels);
        match self.kind {
            Kind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        self.metrics.push(metric);
    }
}

/// A metric with the values of its labels.
fn labelled(names: &[&str], values: &[&str]) -> proto::Metric {
    debug_assert_eq!(values.len(), names.len());
    let pairs = names.iter().zip(values).map(|(name, value)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    });
    proto::Metric::from_label(pairs.collect())
}

/// A distribution that is kept elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Upper bounds of the buckets, rising.
    pub bounds: &'static [f64],
    /// Count of each bucket alone; one more than there are bounds, for values beyond the last.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

fn histogram(buckets: &Buckets) -> proto::Histogram {
    let Buckets {
        bounds,
        counts,
        sum,
    } = buckets;
    let mut total = 0;
    let buckets = bounds.iter().zip(counts).map(|(bound, count)| {
        total += count;
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(total);
        bucket
    });
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(*sum);
    histogram
}

/// One metric whose values are read.
pub(crate) struct Reading {
    desc: Desc,
    read: Box<dyn Fn() -> proto::MetricFamily + Send + Sync>,
}

impl Reading {
    pub(crate) fn new(
        kind: Kind,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: impl Fn(&mut Samples) + Send + Sync + 'static,
    ) -> Self {
        Self::of(name, help, labels, move || {
            let mut samples = Samples {
                kind,
                labels,
                metrics: Vec::new(),
            };
            read(&mut samples);
            let kind = match kind {
                Kind::Counter => proto::MetricType::COUNTER,
                Kind::Gauge => proto::MetricType::GAUGE,
            };
            (kind, samples.metrics)
        })
    }

    pub(crate) fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: impl Fn() -> Vec<(String, Buckets)> + Send + Sync + 'static,
    ) -> Self {
        Self::of(name, help, labels, move || {
            let metrics = read().into_iter().map(|(value, buckets)| {
                let mut metric = labelled(labels, &[value.as_str()][..labels.len()]);
                metric.set_histogram(histogram(&buckets));
                metric
            });
            (proto::MetricType::HISTOGRAM, metrics.collect())
        })
    }

    fn of(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: impl Fn() -> (proto::MetricType, Vec<proto::Metric>) + Send + Sync + 'static,
    ) -> Self {
        let names = labels.iter().map(|it| (*it).to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), names, HashMap::new());
        Self {
            desc: desc.expect("a legal name"),
            read: Box::new(move || {
                let (kind, metrics) = read();
                let mut family = proto::MetricFamily::default();
                family.set_name(name.to_owned());
                family.set_help(help.to_owned());
                family.set_field_type(kind);
                family.set_metric(metrics);
                family
            }),
        }
    }
}

impl Collector for Reading {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        vec![(self.read)()]
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reading").field(&self.desc.fq_name).finish()
    }
}
