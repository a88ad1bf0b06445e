#!/bin/sh
echo "Hello."
