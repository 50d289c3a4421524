"""Functions over arrays, read as syntax trees and typed."""
